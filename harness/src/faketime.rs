//! A wall clock that jumps, for one child process: libfaketime.

use std::path::{Path, PathBuf};

/// The wall clock of a child. Monotonic clocks are left alone.
pub struct FakeClock {
    library: String,
    folder: tempfile::TempDir,
}

impl FakeClock {
    pub fn new() -> Self {
        let library = find().expect("libfaketime is missing; `cargo xtask needs` installs it");
        let clock = Self {
            library: library.to_str().unwrap().to_owned(),
            folder: tempfile::Builder::new().prefix("distlock-it-clock-").tempdir().unwrap(),
        };
        clock.jump_to(0);
        clock
    }

    /// What a child needs in its environment to run by this clock.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().to_str().unwrap().to_owned()),
            // Else the file is read again only every ten seconds.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// Sets the child's wall clock so many seconds off the real one, from its next look at the clock on.
    pub fn jump_to(&self, seconds: i64) {
        // Renamed into place, so that the child never reads half of it.
        let draft = self.folder.path().join("draft");
        std::fs::write(&draft, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(draft, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}

/// Debian puts the library under a folder named after the architecture.
fn find() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut places = folders.chain([Path::new("/usr/lib").to_owned()]).map(|dir| dir.join("faketime/libfaketime.so.1"));
    places.find(|library| library.exists())
}

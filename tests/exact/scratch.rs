//! Crates that are written, compiled and forgotten.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A workspace in the target folder.
pub(crate) struct Scratch {
    folder: PathBuf,
    members: Vec<String>,
}

/// What the compiler says of a place in the code: the lint or the error's code, where it is, and the tokens there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) line: u64,
    pub(crate) code: String,
    pub(crate) tokens: String,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch { folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), members: Vec::new() }
    }

    /// Adds a package with a library. `more` is what its `Cargo.toml` says besides.
    pub(crate) fn library(&mut self, name: &str, edition: &str, code: &str, more: &str) {
        write(&self.folder.join(name).join("src/lib.rs"), code);
        self.package(name, edition, "", more);
    }

    /// Adds a package with further dependencies, and with what its `Cargo.toml` says besides.
    pub(crate) fn package(&mut self, name: &str, edition: &str, dependencies: &str, more: &str) {
        let distlock = env!("CARGO_MANIFEST_DIR");
        let manifest = format!(
            "[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = {edition:?}\nautobins = false\n\n\
             [dependencies]\ndistlock = {{ path = {distlock:?} }}\n{dependencies}\n{more}"
        );
        write(&self.folder.join(name).join("Cargo.toml"), &manifest);
        self.members.push(name.to_owned());
    }

    /// Runs `cargo check` or `cargo clippy`, and returns what is said of each member, in the order of the members.
    pub(crate) fn findings(&self, command: &str) -> Vec<BTreeSet<Finding>> {
        let messages = self.messages(command);
        self.members.iter().map(|member| of_member(member, &messages).flat_map(findings).collect()).collect()
    }

    /// Runs the same, and returns each line that the compiler offers to change, as it is and as it would be.
    pub(crate) fn edits(&self, command: &str) -> Vec<(String, String)> {
        let messages = self.messages(command);
        let of = |member: &String| of_member(member, &messages).flat_map(edits).collect::<Vec<_>>();
        self.members.iter().flat_map(of).collect()
    }

    fn messages(&self, command: &str) -> Vec<Value> {
        let members = &self.members;
        write(&self.folder.join("Cargo.toml"), &format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n"));
        // So that nothing is looked up or downloaded that isn't there already.
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        write(&self.folder.join("Cargo.lock"), &fs::read_to_string(root.join("Cargo.lock")).unwrap());
        self.run(command)
    }

    fn run(&self, command: &str) -> Vec<Value> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([command, "--workspace", "--keep-going", "--offline", "--message-format=json"])
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("exact"))
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let messages: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let finished = messages.last().is_some_and(|last| last["reason"] == "build-finished");
        assert!(finished, "cargo did not come to its end:\n{}", String::from_utf8_lossy(&output.stderr));
        messages
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first_line = self.tokens.lines().next().unwrap_or_default();
        write!(f, "\n    {}: {} at `{first_line}`", self.line, self.code)
    }
}

/// What is written again is compiled again, so what is the same already stays.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn of_member<'a>(member: &str, messages: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let folder = format!("/{member}/Cargo.toml");
    let compiler = messages.iter().filter(|message| message["reason"] == "compiler-message");
    let own = compiler.filter(move |message| message["manifest_path"].as_str().unwrap().ends_with(&folder));
    own.map(|message| &message["message"])
}

fn findings(message: &Value) -> Vec<Finding> {
    let code = message["code"]["code"].as_str().or(message["message"].as_str()).unwrap();
    let spans = message["spans"].as_array().unwrap();
    let primary = spans.iter().filter(|span| span["is_primary"] == true);
    primary
        .map(|span| Finding { line: span["line_start"].as_u64().unwrap(), code: code.to_owned(), tokens: tokens(span) })
        .collect()
}

fn edits(message: &Value) -> impl Iterator<Item = (String, String)> {
    let children = message["children"].as_array().unwrap().iter();
    let spans = children.flat_map(|child| child["spans"].as_array().unwrap());
    spans.filter_map(|span| {
        let text = span["suggested_replacement"].as_str()?;
        let line = span["text"][0]["text"].as_str().unwrap();
        let column = |name: &str| usize::try_from(span[name].as_u64().unwrap()).unwrap() - 1;
        let (start, end) = (column("column_start"), column("column_end"));
        Some((line.to_owned(), format!("{}{text}{}", &line[..start], &line[end..])))
    })
}

fn tokens(span: &Value) -> String {
    let lines = span["text"].as_array().unwrap().iter().map(|line| {
        let letters = line["text"].as_str().unwrap().chars();
        let place = |name: &str| usize::try_from(line[name].as_u64().unwrap()).unwrap() - 1;
        let (start, end) = (place("highlight_start"), place("highlight_end"));
        letters.skip(start).take(end - start).collect::<String>()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The code without the attribute, with an empty line where it was.
pub(crate) fn plain(code: &str) -> String {
    let code = code.replace("use distlock::{LockError, distributed_lock};", "use distlock::LockError;");
    let lines = code.lines().map(|line| if line.trim_start().starts_with("#[distributed_lock(") { "" } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

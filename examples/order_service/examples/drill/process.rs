//! Processes that the drill starts, freezes and ends: each by its own id, and none other.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use order_service::Failure;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Loading a program on a busy machine; far more than it needs.
const START: Duration = Duration::from_secs(20);

/// A process, which is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts the drill in a role, and returns what `ready` makes of the line that says that it is.
    pub(crate) async fn start<T>(
        arguments: &[String],
        log: &Path,
        ready: impl Fn(&str) -> Option<T>,
    ) -> Result<(Process, T), Failure> {
        let mut log = File::options().create(true).append(true).open(log)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--role")
            .args(arguments)
            // Nothing that is set around the drill changes what is drilled.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("RUST_LOG", "info,distlock=debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a process without output")?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("a process without an id")?;
        let mut lines = BufReader::new(output).lines();
        let is_ready = tokio::time::timeout(START, first(&mut lines, &mut log, ready)).await;
        let is_ready = is_ready.map_err(|_| format!("`{}` is not ready after {START:?}", arguments.join(" ")))??;
        tokio::spawn(async move { first(&mut lines, &mut log, |_| None::<()>).await.ok() });
        Ok((Process { child, pid }, is_ready))
    }

    pub(crate) fn freeze(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Kills it without a warning, and waits for its end.
    pub(crate) async fn kill(&mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }
}

/// The first line that has what is looked for; all lines go to the log.
async fn first<T>(
    lines: &mut Lines<BufReader<ChildStdout>>,
    log: &mut File,
    find: impl Fn(&str) -> Option<T>,
) -> Result<T, Failure> {
    while let Some(line) = lines.next_line().await? {
        writeln!(log, "{line}")?;
        if let Some(found) = find(&line) {
            return Ok(found);
        }
    }
    Err("a process ended before it was ready".into())
}

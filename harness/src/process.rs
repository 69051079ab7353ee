//! Client processes: real ones, that can be stopped, continued and killed.
//!
//! A child is the same program once more, with a role in its environment: see [`role`]. A test binary is made to run the one test
//! [`ENTRY`], which does nothing without a role; any other program looks for its role first, and for arguments later. So a role
//! is an ordinary function of the tests, and nothing else has to be built.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::eventually::SOON;
use crate::tied;

/// The test of a test binary that plays the role of a child.
pub const ENTRY: &str = "roles::child_entry";
const ROLE: &str = "DISTLOCK_IT_ROLE";
const ARGUMENTS: &str = "DISTLOCK_IT_ARGUMENTS";
/// Between two arguments; no key, path or URL has it.
const SEPARATOR: char = '\u{1f}';
/// Marks the lines that are events among what libtest prints.
const EVENT: char = '@';

/// A client process; killed on drop, by process id, also when it is stopped.
pub struct Child {
    role: String,
    process: Mutex<std::process::Child>,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
    output: Arc<Mutex<String>>,
}

/// How a child ended, and all it printed.
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
}

impl Child {
    /// Starts a child that runs a role of `roles.rs`.
    pub async fn spawn(role: &str, arguments: &[&str]) -> Self {
        Self::spawn_with(role, arguments, &[]).await
    }

    /// The same with more environment variables.
    pub async fn spawn_with(role: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = tied::tied(std::env::current_exe().unwrap());
        command.args(["--exact", ENTRY, "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(ARGUMENTS, arguments.join(&SEPARATOR.to_string()));
        command.envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = tied::spawn(command).await;
        let output = Arc::new(Mutex::new(String::new()));
        let (sender, events) = mpsc::unbounded_channel();
        collect(process.stdout.take().unwrap(), output.clone(), Some(sender));
        collect(process.stderr.take().unwrap(), output.clone(), None);
        Self { role: role.to_owned(), process: Mutex::new(process), events: events.into(), output }
    }

    pub fn id(&self) -> u32 {
        self.process.lock().unwrap().id()
    }

    /// Waits for the next event of this name, past others, and returns the rest of its line.
    pub async fn event(&self, name: &str) -> String {
        self.event_within(SOON, name).await
    }

    /// The same for one that may take longer than [`SOON`].
    pub async fn event_within(&self, bound: Duration, name: &str) -> String {
        let what = format!("event `{name}` of child `{}`", self.role);
        let mut events = self.events.lock().await;
        loop {
            let event = tokio::time::timeout(bound, events.recv()).await;
            let Some(event) = event.unwrap_or_else(|_| panic!("after {bound:?}, still waiting for: {what}")) else {
                panic!("{what}: the child has ended; it printed:\n{}", self.output());
            };
            let (this, rest) = event.split_once(' ').unwrap_or((&event, ""));
            if this == name {
                return rest.to_owned();
            }
        }
    }

    /// Writes a line to the child's standard input.
    pub fn say(&self, line: &str) {
        let mut process = self.process.lock().unwrap();
        writeln!(process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Closes the child's standard input.
    pub fn end_input(&self) {
        drop(self.process.lock().unwrap().stdin.take());
    }

    /// Stops the process, as a paused machine does: SIGSTOP.
    pub fn stop(&self) {
        tied::stop(&self.process.lock().unwrap());
    }

    /// Lets a stopped process go on.
    pub fn cont(&self) {
        tied::cont(&self.process.lock().unwrap());
    }

    /// Crashes the process: SIGKILL. Returns when it is gone.
    pub fn kill(&self) {
        tied::end(&mut self.process.lock().unwrap());
    }

    /// Waits for the process to end by itself.
    pub async fn wait(&self) -> Ended {
        let begin = Instant::now();
        loop {
            // Taken in a statement of its own, so that the lock isn't held while we wait.
            let ended = self.process.lock().unwrap().try_wait().unwrap();
            if let Some(status) = ended {
                return Ended { status, output: self.output() };
            }
            assert!(begin.elapsed() < SOON, "child `{}` doesn't end; it printed:\n{}", self.role, self.output());
            // The pause between two looks.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// All it printed so far, on both streams.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("child `{}` printed:\n{}", self.role, self.output());
        }
    }
}

/// Reads a stream to its end on a thread of its own.
fn collect(
    stream: impl Read + Send + 'static,
    output: Arc<Mutex<String>>,
    events: Option<mpsc::UnboundedSender<String>>,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            output.lock().unwrap().extend([line.as_str(), "\n"]);
            if let (Some(event), Some(events)) = (line.strip_prefix(EVENT), &events) {
                // Nobody listens any more when the test is over.
                let _ = events.send(event.to_owned());
            }
        }
    });
}

/// In a child: tells the test of an event.
pub fn emit(name: &str, rest: impl std::fmt::Display) {
    // One write for the line, past libtest's capture; stdout is a pipe that the test reads to its end.
    let line = format!("{EVENT}{name} {rest}\n");
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).unwrap();
}

/// In a child: its role and the arguments. Nothing in a process that nobody spawned here.
pub fn role() -> Option<(String, Vec<String>)> {
    let role = std::env::var(ROLE).ok()?;
    let arguments = std::env::var(ARGUMENTS).unwrap();
    Some((role, arguments.split(SEPARATOR).map(str::to_owned).collect()))
}

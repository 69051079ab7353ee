//! The other end of a [`Party`]: its process, and the server that it alone uses.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use harness::server::free_port;
use harness::tied;
use redis::Connection;

use crate::Failure;
use crate::by_hand;
use crate::contender::{Contender, Script};
use crate::cores::{self, Side};
use crate::delay;
use crate::party::Party;
use crate::peers::Site;

/// A server that ends with this program.
pub(crate) struct Server {
    pub(crate) url: String,
    process: process::Child,
}

impl Server {
    pub(crate) fn start() -> Result<Server, Failure> {
        let port = free_port().to_string();
        let mut command = tied::tied("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process =
            process.map_err(|why| format!("redis-server can't be started: {why} (`cargo xtask needs` installs it)"))?;
        let server = Server { url: format!("redis://127.0.0.1:{port}"), process };
        let begin = Instant::now();
        while server.connection().is_err() {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(format!("no answer from the redis-server on port {port}").into());
            }
            // The pause between two looks.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    pub(crate) fn connection(&self) -> redis::RedisResult<Connection> {
        by_hand::client(&self.url).get_connection()
    }

    /// Stops it, as a paused machine does. It can still be killed.
    pub(crate) fn freeze(&self) {
        tied::stop(&self.process);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        tied::end(&mut self.process);
    }
}

/// The longest that an answer may take. A round takes seconds at most, and so does taking all locks.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a contender is met.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) threads: usize,
    pub(crate) ttl: Duration,
    pub(crate) servers: usize,
    /// What each packet takes, each way.
    pub(crate) delay: Option<Duration>,
}

/// A contender's process, with fresh servers for it alone.
pub(crate) struct Child {
    pub(crate) contender: Contender,
    pub(crate) servers: Vec<Server>,
    /// More processes of the same contender, which have no servers of their own.
    fellows: Vec<Child>,
    process: process::Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Child {
    pub(crate) fn start(contender: Contender, setting: Setting) -> Result<Child, Failure> {
        let servers = (0..setting.servers).map(|_| Server::start()).collect::<Result<Vec<_>, _>>()?;
        if setting.threads == 1 {
            for server in &servers {
                cores::keep(&server.process, Side::Server);
            }
        }
        let mut urls = Vec::new();
        for server in &servers {
            urls.push(match setting.delay {
                Some(delay) => delay::before(&server.url, delay)?,
                None => server.url.clone(),
            });
        }
        let mut child = Child::at(contender, setting, urls)?;
        child.servers = servers;
        Ok(child)
    }

    /// A process for servers that are there.
    fn at(contender: Contender, setting: Setting, urls: Vec<String>) -> Result<Child, Failure> {
        let party = Party { contender, threads: setting.threads, site: Site { urls, ttl: setting.ttl } };
        let mut command = match contender.script() {
            Some(script) => script.command(),
            None => tied::tied(std::env::current_exe()?),
        };
        command.args(party.to_arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        if setting.threads == 1 {
            cores::keep(&process, Side::Client);
        }
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let (input, output) = input.zip(output).ok_or("no pipes")?;
        let child =
            Child { contender, servers: Vec::new(), fellows: Vec::new(), process, input, answers: lines(output) };
        child.line()?;
        Ok(child)
    }

    /// Has so many more processes meet it at its servers.
    pub(crate) fn add_fellows(&mut self, count: usize, setting: Setting) -> Result<(), Failure> {
        for _ in 0..count {
            let urls = self.servers.iter().map(|server| server.url.clone()).collect();
            self.fellows.push(Child::at(self.contender, setting, urls)?);
        }
        Ok(())
    }

    /// Has it do something, and returns its answer.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String, Failure> {
        self.say(line);
        self.answer()
    }

    /// Has it and its fellows do something at the same time.
    pub(crate) fn ask_all(&mut self, line: &str) -> Result<Vec<String>, Failure> {
        self.say(line);
        for fellow in &mut self.fellows {
            fellow.say(line);
        }
        let own = self.answer();
        std::iter::once(own).chain(self.fellows.iter().map(Child::answer)).collect()
    }

    fn say(&mut self, line: &str) {
        // One that has ended has no answer.
        let _ = writeln!(self.input, "{line}");
    }

    fn answer(&self) -> Result<String, Failure> {
        let answer = self.line()?;
        match answer.strip_prefix("can't: ") {
            Some(why) => Err(Absent(why.to_owned()).into()),
            None => Ok(answer),
        }
    }

    fn line(&self) -> Result<String, Failure> {
        self.answers.recv_timeout(PATIENCE).map_err(|why| {
            let why = match why {
                RecvTimeoutError::Timeout => format!("fails: no answer for {} s", PATIENCE.as_secs()),
                RecvTimeoutError::Disconnected => "fails: its process has ended".to_owned(),
            };
            Absent(why).into()
        })
    }
}

/// Reads on a thread of its own, so that one can wait for a line no longer than one wants to.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl Drop for Child {
    fn drop(&mut self) {
        tied::end(&mut self.process);
    }
}

/// Why a contender has no figures.
#[derive(Clone, Debug)]
pub(crate) struct Absent(pub(crate) String);

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}

impl Script {
    fn program(&self) -> Command {
        let mut command = tied::tied(self.program);
        if let Some(path) = std::env::var_os(self.path[0]) {
            command.env(self.path[1], path);
        }
        command
    }

    fn command(&self) -> Command {
        let mut command = self.program();
        command.arg(folder().join("scripts").join(self.file));
        command
    }

    /// The versions of what it needs; `None` where that is not installed.
    pub(crate) fn version(&self) -> Option<String> {
        let output = self.program().args(self.versions).stderr(Stdio::null()).output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !version.is_empty()).then_some(version)
    }
}

/// The folder of this package.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

//! Processes that can be killed, and don't outlive the tests.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};

use super::eventually;

type Order = (Command, mpsc::Sender<Child>);

/// The kernel sends the parent-death signal when the *thread* that forked ends, and each test has a thread of its own. So
/// one thread that never ends starts all of them.
static STARTER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (orders, to_do) = mpsc::channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, done) in to_do {
            let what = format!("{command:?}");
            let child = command.spawn().unwrap_or_else(|why| panic!("can't start {what}: {why}"));
            done.send(child).unwrap();
        }
    });
    Mutex::new(orders)
});

/// A command whose process is killed when the tests end, however they end: `setpriv` sets that and becomes the program, so
/// the process id is the program's.
pub(crate) fn tied(setpriv: &[&str], program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(setpriv).args(["--pdeathsig", "KILL", "--"]).arg(program.as_ref());
    command
}

pub(crate) fn start(command: Command) -> Child {
    let (done, child) = mpsc::channel();
    STARTER.lock().unwrap().send((command, done)).unwrap();
    child.recv().unwrap()
}

/// Kills by process id and waits for the end. One that has ended already is no fault.
pub(crate) fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The service or its provider; killed on drop, when its log is shown if the test has failed.
pub(crate) struct Process {
    pub(crate) url: String,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts the built binary, and waits until it listens. One that ends at its start, since a server took too long to answer
    /// on a busy machine, is started again.
    pub(crate) async fn start(folder: &Path, arguments: Vec<String>) -> Process {
        for _ in 0..5 {
            let log = folder.join(format!("{}-{}.log", arguments[0], uuid::Uuid::new_v4()));
            let (to, with) = (log.clone(), arguments.clone());
            let (child, line) = tokio::task::spawn_blocking(move || launch(&to, &with)).await.unwrap();
            let process = Process { url: line.replace("listening on ", ""), child: Mutex::new(child), log };
            if !line.is_empty() {
                assert!(line.starts_with("listening on http://"), "its first line is {line}");
                return process;
            }
            eprintln!("{arguments:?} has ended: {}", process.log());
        }
        panic!("the service ends at its start, five times");
    }

    /// Starts one that ends before it listens, and returns what it said.
    pub(crate) async fn refuses(folder: &Path, arguments: Vec<String>) -> String {
        let log = folder.join(format!("{}.log", uuid::Uuid::new_v4()));
        let to = log.clone();
        let (mut child, line) = tokio::task::spawn_blocking(move || launch(&to, &arguments)).await.unwrap();
        end(&mut child);
        assert_eq!(line, "", "it listens");
        std::fs::read_to_string(log).unwrap()
    }

    /// SIGKILL: it has no time for anything.
    pub(crate) fn kill(&self) {
        end(&mut self.child.lock().unwrap());
    }

    /// SIGTERM, and waits until it has ended. Says whether it ended well.
    pub(crate) async fn terminate(&self) -> bool {
        let id = self.child.lock().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        eventually("it ends", async || self.child.lock().unwrap().try_wait().unwrap()).await.success()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// Starts it, and returns with its first line.
fn launch(log: &Path, arguments: &[String]) -> (Child, String) {
    let mut command = tied(&[], env!("CARGO_BIN_EXE_order-service"));
    // Nothing of what the developer has set counts.
    command.env_clear().env("RUST_LOG", "info,sqlx=warn,distlock=debug").args(arguments);
    command.stdout(Stdio::piped()).stderr(File::create(log).unwrap());
    let mut child = start(command);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

impl Drop for Process {
    fn drop(&mut self) {
        end(self.child.get_mut().unwrap());
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

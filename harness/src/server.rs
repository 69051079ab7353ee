//! A real `redis-server` on a free port of the loopback interface.
//!
//! It is started here and not by `redis-server-wrapper` (whose fault proxy we do use): that crate's servers are daemons,
//! which outlive a test process that is killed, and stopping one takes half a second.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::eventually::{SOON, eventually};
use crate::faketime::FakeClock;
use crate::proxy::Proxy;
use crate::tied;
use crate::topology::{self, Topology};

const SOCKET: &str = "redis.sock";

/// A running server; killed on drop, by process id, also when it is frozen.
pub struct Server {
    pub(crate) port: u16,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) process: Mutex<Child>,
    options: Options,
    link: Option<Proxy>,
    clock: Option<FakeClock>,
}

/// How to start a server, where the plain one won't do.
#[derive(Clone, Default)]
pub struct Options {
    password: Option<String>,
    unix_socket: bool,
    directives: Vec<[String; 2]>,
    environment: Vec<(&'static str, String)>,
    pub(crate) linked: bool,
    has_own_clock: bool,
}

impl Options {
    /// Sets a password for the user `default`.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.directive("requirepass", password)
    }

    /// Adds a user, e.g. `locker on >secret ~lock:* +@all`.
    pub fn user(self, rules: &str) -> Self {
        self.directive("user", rules)
    }

    /// Listens on a socket file too.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Adds a line of redis.conf.
    pub fn directive(mut self, name: &str, value: &str) -> Self {
        self.directives.push([name.to_owned(), value.to_owned()]);
        self
    }

    /// Has the server tell everybody (clients, sentinels, replicas) the address of a proxy in front of it: [`Server::link`].
    pub fn linked(mut self) -> Self {
        self.linked = true;
        self
    }

    fn announces(self, port: u16) -> Self {
        let port = port.to_string();
        let ports = ["replica-announce-port", "cluster-announce-port"];
        let options = ports.iter().fold(self, |options, name| options.directive(name, &port));
        options.directive("replica-announce-ip", "127.0.0.1")
    }

    /// Lets the server's wall clock be set by the test.
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        for (name, mut value) in clock.environment() {
            if name == "LD_PRELOAD" {
                // With jemalloc, which Redis uses, libfaketime hangs before `main`: each waits for the other. So this `malloc`
                // takes its place.
                value.push_str(":libc.so.6");
            }
            self.environment.push((name, value));
        }
        self
    }

    /// The same with a clock of each server's own: [`Server::clock`].
    pub fn own_clock(mut self) -> Self {
        self.has_own_clock = true;
        self
    }

    /// Starts a server with these options.
    pub async fn start(self) -> Server {
        // Somebody may take the port between our look and the server's. Five times in a row is another fault.
        for _ in 0..5 {
            let folder = tempfile::Builder::new().prefix("distlock-it-").tempdir().unwrap();
            let port = free_port();
            let link = self.linked.then(free_port);
            let clock = self.has_own_clock.then(FakeClock::new);
            let options = link.into_iter().fold(self.clone(), Self::announces);
            let options = clock.iter().fold(options, Self::clock);
            let process = Mutex::new(options.launch(folder.path(), port).await);
            let mut server = Server { port, folder, process, options, link: None, clock };
            if server.comes_up().await {
                if let Some(link) = link {
                    server.link = Some(Proxy::start_on(link, &server).await);
                }
                if self.is_plain() {
                    topology::join(&server).await;
                }
                return server;
            }
            eprintln!("redis-server ended at once on port {port}: {}", server.log());
        }
        panic!("redis-server ended at once, five times; its log is above");
    }

    /// Whether it may be what the topology of this run of the tests wants.
    fn is_plain(&self) -> bool {
        let has_more = self.unix_socket || self.linked || self.has_own_clock;
        self.directives.is_empty() && self.environment.is_empty() && self.password.is_none() && !has_more
    }

    async fn launch(&self, folder: &Path, port: u16) -> Child {
        let mut command = tied::tied("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
        command.arg("--dir").arg(folder).arg("--logfile").arg(folder.join("log"));
        if self.is_plain() && topology::topology() == Topology::Cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]);
        }
        if self.unix_socket {
            command.arg("--unixsocket").arg(folder.join(SOCKET));
        }
        for [name, value] in &self.directives {
            command.arg(format!("--{name}"));
            // Redis takes each word of these as an argument of its own.
            command.args(if ["user", "replicaof"].contains(&name.as_str()) {
                value.split(' ').collect()
            } else {
                vec![value.as_str()]
            });
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tied::spawn(command).await
    }
}

impl Server {
    /// Starts a plain server: no password, no persistence, `DEBUG` allowed.
    pub async fn start() -> Self {
        Self::options().start().await
    }

    /// The options of a plain server, to be changed.
    pub fn options() -> Options {
        Options::default()
    }

    /// `127.0.0.1:port`, for proxies.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The proxy in front of it, with [`Options::linked`].
    pub fn link(&self) -> Option<&Proxy> {
        self.link.as_ref()
    }

    /// Its wall clock, with [`Options::own_clock`].
    pub fn clock(&self) -> Option<&FakeClock> {
        self.clock.as_ref()
    }

    /// The address that it tells others.
    pub fn announced(&self) -> String {
        self.link.as_ref().map_or_else(|| self.address(), Proxy::address)
    }

    /// The URL of database 0, as the user `default`.
    pub fn url(&self) -> String {
        self.url_at(&self.address())
    }

    /// The same over another address: that of a proxy.
    pub fn url_at(&self, address: &str) -> String {
        let password = self.options.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{password}{address}")
    }

    /// The URL of the socket file, for [`Options::unix_socket`].
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.folder.path().join(SOCKET).display())
    }

    /// Crashes the server: SIGKILL. Returns when it is gone.
    pub fn kill(&self) {
        tied::end(&mut self.process.lock().unwrap());
    }

    /// Starts the server again on its port, after [`Self::kill`] or instead of it; what it had in memory is lost.
    pub async fn restart(&self) {
        self.kill();
        // From a `SAVE` before: a restart with nothing means nothing.
        let _ = std::fs::remove_file(self.folder.path().join("dump.rdb"));
        self.relaunch().await;
    }

    /// Saves, crashes and starts the server again with the data it had.
    pub async fn restart_with_data(&self) {
        self.query::<()>(&redis::cmd("SAVE")).await.unwrap();
        self.kill();
        self.relaunch().await;
    }

    /// Ends the server in order: it takes nothing any more, saves, and is gone. [`Self::relaunch`] brings it back with all that it had.
    pub async fn shut_down(&self) {
        // The answer is the end of the connection.
        let _ = self.query::<()>(redis::cmd("SHUTDOWN").arg("SAVE")).await;
        let has_ended = || async { self.process.lock().unwrap().try_wait().unwrap().is_some() };
        eventually("the server to shut down", has_ended).await;
    }

    /// Starts a server that has ended, with what it has saved.
    pub async fn relaunch(&self) {
        let process = self.options.launch(self.folder.path(), self.port).await;
        *self.process.lock().unwrap() = process;
        assert!(self.comes_up().await, "the server doesn't come up again on port {}: {}", self.port, self.log());
    }

    /// Waits until this very process answers on the port; `false` when it ended instead.
    async fn comes_up(&self) -> bool {
        let id = self.process.lock().unwrap().id();
        let begin = Instant::now();
        loop {
            if self.process.lock().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if self.info("server").await.is_some_and(|info| info.contains(&format!("process_id:{id}\r"))) {
                return true;
            }
            assert!(begin.elapsed() < SOON, "no answer from redis-server on port {}: {}", self.port, self.log());
            // The pause between two looks.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// What the server wrote to its log, for messages.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_else(|why| why.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        topology::leave(self);
        self.kill();
    }
}

/// A port that nobody listens on.
///
/// From below the range of ephemeral ports (32768 and up): there, an outgoing connection could take the port of a server
/// that is being restarted, and a client that tries to reach a dead server could connect to itself.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        // Test processes that run side by side begin at different places.
        let offset = std::process::id().wrapping_mul(379) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + u16::try_from(offset % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

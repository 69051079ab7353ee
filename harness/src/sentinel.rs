//! A primary, replicas and real sentinels, and the ways in which the primary fails.

use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisResult, Value, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::backstage::{backstage, on_backstage};
use crate::eventually::{eventually, within};
use crate::inspect::query_at;
use crate::server::{Options, Server, free_port};
use crate::tied;

/// The name under which the sentinels know the servers.
pub const SERVICE: &str = "orders";

/// How long it may take until there is another primary. A sentinel that got no time to run for two seconds trusts nothing for half a
/// minute (TILT).
const ANOTHER: Duration = Duration::from_secs(60);

/// What a sentinel is told, and writes down.
const FILE: &str = "sentinel.conf";
const LOG: &str = "log";

/// How sentinels log in to the servers, and others to them.
#[derive(Clone, Default)]
pub struct Passwords {
    pub servers: Option<&'static str>,
    pub sentinels: Option<&'static str>,
    /// Rules of one more user of the sentinels.
    pub user: Option<&'static str>,
}

/// A running sentinel; killed on drop, by process id, also when it is frozen.
pub struct Sentinel {
    port: u16,
    password: Option<&'static str>,
    process: Mutex<Child>,
    folder: tempfile::TempDir,
}

impl Sentinel {
    pub async fn start(primary: &Server, passwords: &Passwords) -> Self {
        let (folder, port) = (tempfile::Builder::new().prefix("distlock-it-").tempdir().unwrap(), free_port());
        std::fs::write(folder.path().join(FILE), configuration(port, primary, passwords)).unwrap();
        let process = Mutex::new(launch(folder.path()).await);
        let sentinel = Self { port, password: passwords.sentinels, process, folder };
        sentinel.comes_up().await;
        sentinel
    }

    async fn comes_up(&self) {
        eventually("the sentinel to answer", || async { self.query::<()>(&cmd("PING")).await.is_ok() }).await;
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub async fn query<T: FromRedisValue + Send + 'static>(&self, command: &Cmd) -> RedisResult<T> {
        let password = self.password.map(|password| format!(":{password}@")).unwrap_or_default();
        query_at(format!("redis://{password}{}", self.address()), command.clone()).await
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_else(|why| why.to_string())
    }

    pub fn kill(&self) {
        tied::end(&mut self.process.lock().unwrap());
    }

    /// Starts it again, after [`Self::kill`] or instead of it. What it knows it has written down.
    pub async fn restart(&self) {
        self.kill();
        let process = launch(self.folder.path()).await;
        *self.process.lock().unwrap() = process;
        self.comes_up().await;
    }

    pub fn freeze(&self) {
        tied::stop(&self.process.lock().unwrap());
    }

    pub fn thaw(&self) {
        tied::cont(&self.process.lock().unwrap());
    }

    /// The address that it names as the primary's, unless it is silent for longer than it would have to be busy.
    pub async fn named(&self) -> Option<String> {
        let question = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(SERVICE).clone();
        let answer = tokio::time::timeout(Duration::from_millis(500), self.query::<Vec<String>>(&question)).await;
        Some(answer.ok()?.ok()?.join(":"))
    }

    /// Whether it takes the primary for sound, and replaces nobody.
    pub async fn is_calm(&self) -> bool {
        let about: Vec<String> = self.query(cmd("SENTINEL").arg("MASTER").arg(SERVICE)).await.unwrap_or_default();
        about.iter().skip_while(|field| *field != "flags").nth(1).is_some_and(|flags| flags == "master")
    }

    /// How often it asks servers who follows them, and gives signs of life to the other sentinels, in milliseconds. An old
    /// primary is made a replica after four of the latter.
    async fn paces(&self, info: u32, publish: u32) {
        let mut paces = cmd("SENTINEL");
        paces.arg("DEBUG").arg("info-period").arg(info).arg("publish-period").arg(publish);
        self.query::<()>(&paces).await.unwrap();
    }

    /// Whether it knows all that there is to know.
    async fn knows(&self, replicas: usize, sentinels: usize) -> bool {
        let about = |what: &str| cmd("SENTINEL").arg(what).arg(SERVICE).clone();
        let others = self.query::<Vec<Value>>(&about("SENTINELS")).await.map_or(0, |others| others.len());
        let found: Vec<Vec<String>> = self.query(&about("REPLICAS")).await.unwrap_or_default();
        let sound = |fields: &&Vec<String>| {
            let field = |name: &str| fields.iter().skip_while(|field| *field != name).nth(1).map(String::as_str);
            field("flags") == Some("slave") && field("master-link-status") == Some("ok")
        };
        others == sentinels - 1 && found.iter().filter(sound).count() == replicas
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn launch(folder: &Path) -> Child {
    let mut command = tied::tied("redis-server");
    command.arg(folder.join(FILE)).arg("--sentinel").current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    tied::spawn(command).await
}

fn configuration(port: u16, primary: &Server, passwords: &Passwords) -> String {
    let mut text = format!("port {port}\nbind 127.0.0.1\nlogfile {LOG}\n");
    // After a failure, the next try comes within three to six seconds.
    let lines = ["down-after-milliseconds {} 1000", "failover-timeout {} 3000"];
    writeln!(text, "sentinel monitor {SERVICE} {} 2", primary.announced().replace(':', " ")).unwrap();
    for line in lines {
        writeln!(text, "sentinel {}", line.replace("{}", SERVICE)).unwrap();
    }
    if let Some(password) = passwords.servers {
        writeln!(text, "sentinel auth-pass {SERVICE} {password}").unwrap();
    }
    if let Some(password) = passwords.sentinels {
        writeln!(text, "requirepass {password}\nsentinel sentinel-pass {password}").unwrap();
    }
    if let Some(rules) = passwords.user {
        writeln!(text, "user {rules}").unwrap();
    }
    text
}

/// A primary and the replicas that follow it.
pub async fn followed(replicas: usize, options: Options) -> Vec<Server> {
    // A full sync at once instead of five seconds later.
    let options = options.directive("repl-diskless-sync-delay", "0");
    let mut servers = vec![options.clone().start().await];
    for _ in 0..replicas {
        let primary = servers[0].announced().replace(':', " ");
        servers.push(options.clone().directive("replicaof", &primary).start().await);
    }
    let count = format!("connected_slaves:{replicas}\r");
    let online = || async {
        let info = servers[0].info("replication").await.unwrap();
        info.contains(&count) && info.matches("state=online").count() == replicas
    };
    eventually("the replicas to follow", online).await;
    // A replica gets nothing before its first sign of life after the sync, which may come a second later. A message is
    // passed on to it, and leaves nothing behind.
    servers[0].query::<()>(cmd("PUBLISH").arg("followed").arg("")).await.unwrap();
    caught_up(&servers).await;
    servers
}

/// Has all replicas have all that was written so far.
async fn caught_up(servers: &[Server]) {
    let offset = |info: &str, name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap()
    };
    let info = servers[0].info("replication").await.unwrap();
    let written = offset(&info, "master_repl_offset:");
    for replica in &servers[1..] {
        let caught_up =
            || async { offset(&replica.info("replication").await.unwrap(), "slave_repl_offset:") >= written };
        eventually("a replica to catch up", caught_up).await;
    }
}

/// Servers of which the first was the primary at the start, with three sentinels.
pub struct Guarded {
    pub servers: Vec<Server>,
    pub sentinels: Vec<Sentinel>,
}

/// How the primary fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fall {
    Killed,
    Frozen,
    /// `SENTINEL FAILOVER`: the old primary lives on, and for some seconds as a primary.
    Commanded,
}

impl Guarded {
    pub async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, Server::options(), Passwords::default()).await
    }

    pub async fn start_with(replicas: usize, options: Options, passwords: Passwords) -> Self {
        let servers = followed(replicas, options).await;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Sentinel::start(&servers[0], &passwords).await);
        }
        for sentinel in &sentinels {
            sentinel.paces(100, 100).await;
        }
        for sentinel in &sentinels {
            eventually("a sentinel to know all others", || sentinel.knows(replicas, 3)).await;
            // What sentinels do when nobody is in a hurry.
            sentinel.paces(10_000, 2000).await;
        }
        Self { servers, sentinels }
    }

    /// The hosts of a URL, without scheme and service.
    pub fn hosts(&self) -> String {
        self.sentinels.iter().map(Sentinel::address).collect::<Vec<_>>().join(",")
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://{}#{SERVICE}", self.hosts())
    }

    /// The first primary.
    pub fn primary(&self) -> &Server {
        &self.servers[0]
    }

    /// Has all replicas have all that was written so far.
    pub async fn replicated(&self) {
        caught_up(&self.servers).await;
    }

    /// Makes the first primary fail, and returns its successor when that one is there.
    pub async fn fall(&self, fall: Fall) -> &Server {
        match fall {
            Fall::Killed => self.primary().kill(),
            Fall::Frozen => self.primary().freeze(),
            Fall::Commanded => {
                let failover = cmd("SENTINEL").arg("FAILOVER").arg(SERVICE).clone();
                // For its first seconds a sentinel may find no replica that it has heard enough of.
                let accepted = || async { self.sentinels[0].query::<()>(&failover).await.is_ok() };
                eventually("the sentinel to agree", accepted).await;
            }
        }
        self.successor().await
    }

    /// Waits until all sentinels name this server.
    pub async fn names(&self, server: &Server) {
        for sentinel in &self.sentinels {
            let named = || async { sentinel.named().await == Some(server.announced()) };
            within(ANOTHER, "a sentinel to name the successor", named).await;
        }
    }

    /// The server that a sentinel has come to name, and that says so itself. The latter alone is not enough: if sentinels
    /// miss a promotion, because they get no time to run, they give that failover up and promote another one.
    async fn successor(&self) -> &Server {
        let named = async {
            loop {
                for sentinel in &self.sentinels {
                    let named = sentinel.named().await;
                    let successor = self.servers[1..].iter().find(|server| Some(server.announced()) == named);
                    match successor {
                        Some(server) if server.is_primary().await => return server,
                        _ => {}
                    }
                }
            }
        };
        tokio::time::timeout(ANOTHER, named).await.unwrap_or_else(|_| {
            let logs: Vec<String> = self.sentinels.iter().map(Sentinel::log).collect();
            panic!("after {ANOTHER:?}, still waiting for another primary; the sentinels say:\n{}", logs.join("\n"))
        })
    }
}

impl Server {
    /// What the server itself says of its role.
    pub async fn is_primary(&self) -> bool {
        self.info("replication").await.is_some_and(|info| info.contains("role:master\r"))
    }
}

/// What takes itself for a sentinel and names one address for ever: one that has not heard of failovers. Ends with the
/// process; it is only a port.
pub async fn behind(names: &Server, epoch: u64) -> String {
    let port = names.port.to_string();
    let master =
        format!("*4\r\n$4\r\nname\r\n$1\r\nx\r\n$12\r\nconfig-epoch\r\n${}\r\n{epoch}\r\n", epoch.to_string().len());
    let answer = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n{master}", port.len());
    let listener = on_backstage(TcpListener::bind("127.0.0.1:0")).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    backstage().spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let answer = answer.clone();
            backstage().spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = client.read(&mut buffer).await {
                    // Both questions come in one packet, and nothing else does.
                    assert!(String::from_utf8_lossy(&buffer[..length]).contains("GET-MASTER-ADDR"));
                    client.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

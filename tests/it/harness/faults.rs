//! Faults of the server itself. `selftest` shows of each that it is there when the call returns.

use std::time::Duration;

use redis::cmd;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use super::backstage::backstage;
use super::eventually::{eventually, soon};
use super::inspect::query_at;
use super::server::Server;
use super::tied;

/// A fault that ends by itself after its time.
#[must_use = "a fault that ends at an unknown time is no event to test against"]
pub(crate) struct Passing(JoinHandle<()>);

impl Passing {
    /// Waits until the fault is over.
    pub(crate) async fn over(self) {
        self.0.await.unwrap();
    }
}

impl Server {
    /// Stops the process: it accepts (the kernel does) and never answers, until [`Self::thaw`].
    pub(crate) fn freeze(&self) {
        tied::signal(&self.process.lock().unwrap(), Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        tied::signal(&self.process.lock().unwrap(), Signal::CONT);
    }

    /// From now on for about `time`, the server answers BUSY to everything: a script that doesn't end.
    pub(crate) async fn busy(&self, time: Duration) -> Passing {
        self.config("busy-reply-threshold", "50").await;
        // Its answer comes when it is killed, and is an error then; the connection may give up before.
        backstage().spawn(query_at::<()>(
            self.url(),
            cmd("EVAL").arg("while true do end").arg(0).clone(),
        ));
        eventually("BUSY", || async { self.answers("BUSY").await }).await;
        let url = self.url();
        Passing(backstage().spawn(async move {
            // The fault lasts as long as the test asked for.
            tokio::time::sleep(time).await;
            query_at::<()>(url, cmd("SCRIPT").arg("KILL").clone())
                .await
                .unwrap();
        }))
    }

    /// From now on for about `time`, the server answers LOADING to everything: it reads its data again, slowed down.
    ///
    /// It reads what it has (and what is added to make it last, under keys that begin with `loading:`), so locks survive.
    pub(crate) async fn loading(&self, time: Duration) -> Passing {
        // Microseconds per key. The sleeps are a little longer than asked for.
        let (delay, keys) = (200, time.as_micros() / 230);
        let keys = u64::try_from(keys).unwrap();
        self.query::<()>(cmd("DEBUG").arg("POPULATE").arg(keys).arg("loading"))
            .await
            .unwrap();
        self.config("loading-process-events-interval-bytes", "1024")
            .await;
        self.config("key-load-delay", &delay.to_string()).await;
        // Its answer comes when all is read; the connection gives up before.
        backstage().spawn(query_at::<()>(
            self.url(),
            cmd("DEBUG").arg("RELOAD").clone(),
        ));
        eventually("LOADING", || async { self.answers("LOADING").await }).await;
        let url = self.url();
        Passing(backstage().spawn(async move {
            let over = || async { query_at::<String>(url.clone(), cmd("PING")).await.is_ok() };
            eventually("the end of LOADING", over).await;
        }))
    }

    /// From now on until [`Self::end_misconf`], the server refuses writes since its last save failed.
    pub(crate) async fn misconf(&self) {
        self.config("save", "3600 1").await;
        // A folder where the save would put its file makes the save fail, also for root.
        std::fs::create_dir_all(self.folder.path().join("dump.rdb/in-the-way")).unwrap();
        self.save("err").await;
    }

    pub(crate) async fn end_misconf(&self) {
        std::fs::remove_dir_all(self.folder.path().join("dump.rdb")).unwrap();
        self.save("ok").await;
    }

    /// Makes the server a replica (of nobody): its connections stay open and writes get READONLY.
    pub(crate) async fn readonly(&self) {
        self.query::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(1))
            .await
            .unwrap();
    }

    pub(crate) async fn writable(&self) {
        self.query::<()>(cmd("REPLICAOF").arg("NO").arg("ONE"))
            .await
            .unwrap();
    }

    pub(crate) async fn flush_scripts(&self) {
        self.query::<()>(cmd("SCRIPT").arg("FLUSH")).await.unwrap();
    }

    /// Closes all connections of a type: `normal`, `pubsub`.
    pub(crate) async fn kill_clients(&self, kind: &str) -> u64 {
        self.query(cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind))
            .await
            .unwrap()
    }

    /// `CONFIG SET`.
    pub(crate) async fn config(&self, name: &str, value: &str) {
        self.query::<()>(cmd("CONFIG").arg("SET").arg(name).arg(value))
            .await
            .unwrap();
    }

    /// Whether a harmless command is refused with this error code.
    pub(crate) async fn answers(&self, code: &str) -> bool {
        let answer = self.query::<String>(cmd("GET").arg("no-such-key")).await;
        answer.is_err_and(|error| error.code() == Some(code))
    }

    /// Saves in the background and waits for an outcome: `ok` or `err`.
    async fn save(&self, outcome: &str) {
        self.query::<()>(&cmd("BGSAVE")).await.unwrap();
        let line = format!("rdb_last_bgsave_status:{outcome}\r");
        let saved = || async {
            let info = self.info("persistence").await.unwrap();
            info.contains(&line) && info.contains("rdb_bgsave_in_progress:0")
        };
        soon("the save", eventually("the outcome of the save", saved)).await;
    }
}

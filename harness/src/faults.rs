//! Faults of the server itself. `selftest` shows of each that it is there when the call returns.

use redis::cmd;

use crate::backstage::backstage;
use crate::eventually::{eventually, soon};
use crate::inspect::query_at;
use crate::server::Server;
use crate::tied;

impl Server {
    /// Stops the process: it accepts (the kernel does) and never answers, until [`Self::thaw`].
    pub fn freeze(&self) {
        tied::stop(&self.process.lock().unwrap());
    }

    pub fn thaw(&self) {
        tied::cont(&self.process.lock().unwrap());
    }

    /// From now on until [`Self::end_busy`], the server answers BUSY to everything: a script that doesn't end.
    pub async fn busy(&self) {
        self.config("busy-reply-threshold", "50").await;
        // Its answer comes when it is killed, and is an error then; the connection may give up before.
        let endless = cmd("EVAL").arg("while true do end").arg(0).clone();
        backstage().spawn(query_at::<()>(self.url(), endless));
        eventually("BUSY", || self.answers("BUSY")).await;
    }

    pub async fn end_busy(&self) {
        self.query::<()>(cmd("SCRIPT").arg("KILL")).await.unwrap();
        eventually("the end of BUSY", || self.answers_well()).await;
    }

    /// From now on until [`Self::end_loading`] (or for about ten seconds), the server answers LOADING to everything: it
    /// reads its data again, slowed down. The locks that it had survive, and keys that make it last are added to them.
    pub async fn loading(&self) {
        // 20,000 keys of half a millisecond; the server looks at its connections every 1,024 bytes, about 40 keys.
        self.query::<()>(cmd("DEBUG").arg("POPULATE").arg(20_000).arg("loading")).await.unwrap();
        self.config("loading-process-events-interval-bytes", "1024").await;
        self.config("key-load-delay", "500").await;
        // Its answer comes when all is read; the connection may give up before.
        backstage().spawn(query_at::<()>(self.url(), cmd("DEBUG").arg("RELOAD").clone()));
        eventually("LOADING", || self.answers("LOADING")).await;
    }

    pub async fn end_loading(&self) {
        self.config("key-load-delay", "0").await;
        eventually("the end of LOADING", || self.answers_well()).await;
    }

    /// From now on until [`Self::end_misconf`], the server refuses writes since its last save failed.
    pub async fn misconf(&self) {
        self.config("save", "3600 1").await;
        // A folder where the save would put its file makes the save fail, also for root.
        std::fs::create_dir_all(self.folder.path().join("dump.rdb/in-the-way")).unwrap();
        self.save("err").await;
    }

    pub async fn end_misconf(&self) {
        std::fs::remove_dir_all(self.folder.path().join("dump.rdb")).unwrap();
        self.save("ok").await;
    }

    /// Makes the server a replica (of nobody): its connections stay open and writes get READONLY.
    pub async fn readonly(&self) {
        self.query::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await.unwrap();
    }

    pub async fn writable(&self) {
        self.query::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await.unwrap();
    }

    pub async fn flush_scripts(&self) {
        self.query::<()>(cmd("SCRIPT").arg("FLUSH")).await.unwrap();
    }

    /// Closes all connections of a type: `normal`, `pubsub`.
    pub async fn kill_clients(&self, kind: &str) -> u64 {
        self.query(cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind)).await.unwrap()
    }

    /// `CONFIG SET`.
    pub async fn config(&self, name: &str, value: &str) {
        self.query::<()>(cmd("CONFIG").arg("SET").arg(name).arg(value)).await.unwrap();
    }

    /// Whether a harmless command is refused with this error code.
    pub async fn answers(&self, code: &str) -> bool {
        let answer = self.query::<String>(cmd("GET").arg("no-such-key")).await;
        answer.is_err_and(|error| error.code() == Some(code))
    }

    async fn answers_well(&self) -> bool {
        self.query::<String>(&cmd("PING")).await.is_ok()
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

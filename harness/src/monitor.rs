//! Everything that a server is asked, in order: `MONITOR`.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::backstage::{backstage, on_backstage};
use crate::eventually::eventually;
use crate::server::Server;

/// Collects the lines until it is dropped. Commands that a script runs are lines of their own, marked ` lua] `.
pub struct Monitor<'a> {
    server: &'a Server,
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Server {
    /// Collects from now on what the server is asked. Not for servers with a password.
    pub async fn monitor(&self) -> Monitor<'_> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let reader = backstage().spawn(collect(on_backstage(open(self.address())).await, lines.clone()));
        Monitor { server: self, lines, reader }
    }
}

/// A connection that `MONITOR` is in effect on.
async fn open(address: String) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"MONITOR\r\n").await.unwrap();
    let mut stream = BufReader::new(stream);
    let mut answer = String::new();
    stream.read_line(&mut answer).await.unwrap();
    assert_eq!(answer, "+OK\r\n");
    stream
}

async fn collect(stream: BufReader<TcpStream>, sink: Arc<Mutex<Vec<String>>>) {
    let mut lines = stream.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        sink.lock().unwrap().push(line);
    }
}

impl Monitor<'_> {
    /// The lines so far that contain all of these texts, in any case of letters.
    ///
    /// All that the server was asked before this call is there: it waits for a command of its own to come by.
    pub async fn lines_with(&self, texts: &[&str]) -> Vec<String> {
        let mark = uuid::Uuid::new_v4().to_string();
        self.server.query::<String>(redis::cmd("ECHO").arg(&mark)).await.unwrap();
        eventually("MONITOR to catch up", || async {
            self.lines.lock().unwrap().iter().any(|line| line.contains(&mark))
        })
        .await;
        let wanted: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
        let matches = |line: &String| wanted.iter().all(|text| line.to_lowercase().contains(text));
        self.lines.lock().unwrap().iter().filter(|line| matches(line)).cloned().collect()
    }

    /// How many of the lines so far contain all of these texts.
    pub async fn count(&self, texts: &[&str]) -> usize {
        self.lines_with(texts).await.len()
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

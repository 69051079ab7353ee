//! The server of a bench. The tests' own (the crate `harness`) can be broken in many ways, and starts on a runtime behind
//! the scenes that would take part in what is measured here.

use std::process::{Child, Command, Stdio};

/// A server for this run, unless there is one already.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) process: Option<Child>,
}

impl Server {
    /// Starts a server, or takes the one that `REDIS_URL` names.
    pub(crate) fn start() -> Server {
        if let Ok(url) = std::env::var("REDIS_URL") {
            return Server { url, process: None };
        }
        Server::start_own()
    }

    /// Starts a server, whatever there is.
    pub(crate) fn start_own() -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let process = Server::launch(&port);
        Server { url: format!("redis://127.0.0.1:{port}"), process: Some(process) }
    }

    pub(crate) fn launch(port: &str) -> Child {
        let process = Command::new("redis-server")
            .args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed (`cargo xtask needs` does it)");
        while std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            std::thread::yield_now();
        }
        process
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

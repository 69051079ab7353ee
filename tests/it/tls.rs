//! `rediss://`: a server whose certificate our own authority has signed.

use std::path::Path;
use std::process::Command;

use distlock::LockManager;
use redis::{Client, TlsCertificates};

use crate::calls::connect;
use crate::harness::eventually::eventually;
use crate::harness::process::{Child, emit};
use crate::harness::server::{Server, free_port};
use crate::harness::tied;

/// A server that also listens for TLS, and what it takes to trust it.
struct Secure {
    server: Server,
    url: String,
    port: String,
    authority: Vec<u8>,
    files: tempfile::TempDir,
}

async fn secure() -> Secure {
    let files = tempfile::tempdir().unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(files.path(), &format!("req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.pem"));
    let signed = "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    openssl(files.path(), &format!("req -x509 {key} {signed} -subj /CN=localhost -keyout key.pem -out cert.pem"));

    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let port = free_port().to_string();
    let options = Server::options()
        .directive("tls-port", &port)
        .directive("tls-cert-file", &path("cert.pem"))
        .directive("tls-key-file", &path("key.pem"))
        .directive("tls-ca-cert-file", &path("ca.pem"))
        .directive("tls-auth-clients", "no");
    let server = options.start().await;
    let authority = std::fs::read(files.path().join("ca.pem")).unwrap();
    Secure { server, url: format!("rediss://localhost:{port}"), port, authority, files }
}

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_the_client_knows_is_trusted() {
    let secure = secure().await;
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(secure.authority.clone()) };
    let client = Client::build_with_tls(secure.url.as_str(), certificates).unwrap();
    let manager = LockManager::builder().redis_client(client).build().await.unwrap();
    let guard = manager.lock("k").acquire().await.unwrap();
    assert_eq!(secure.server.keys().await, ["lock:{k}"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_and_says_so() {
    let secure = secure().await;
    let error = LockManager::connect(&secure.url).await.expect_err("an unknown authority was trusted");
    let text = error.to_string();
    assert!(text.contains("localhost") && text.to_lowercase().contains("certificate"), "where and why? {text}");
}

/// A role: takes a lock and frees it, trusting whom the environment says.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn lock_once(arguments: &[&str]) {
    connect(arguments[0]).await.lock("k").acquire().await.unwrap().release().await.unwrap();
    emit("done", "");
}

/// In a process of its own, since whom to trust is said by an environment variable.
#[tokio::test]
async fn sentinels_and_the_primary_that_they_name_are_spoken_to_over_tls() {
    let secure = secure().await;
    let (port, folder) = (free_port(), secure.files.path());
    let file = folder.join("sentinel.conf");
    let tls = "tls-cert-file cert.pem\ntls-key-file key.pem\ntls-ca-cert-file ca.pem\ntls-auth-clients no\ntls-replication yes";
    let monitor = format!("sentinel monitor secured 127.0.0.1 {} 1", secure.port);
    std::fs::write(&file, format!("port 0\ntls-port {port}\n{tls}\nlogfile sentinel.log\n{monitor}\n")).unwrap();
    let mut command = tied::tied("redis-server");
    command.arg(&file).arg("--sentinel").current_dir(folder);
    let sentinel = Ended(tied::spawn(command).await);
    eventually("the sentinel to listen", || async { std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() }).await;
    let authority = folder.join("ca.pem");
    let environment = [("SSL_CERT_FILE", authority.to_str().unwrap())];
    let url = format!("rediss-sentinel://localhost:{port}#secured");
    Child::spawn_with("tls: lock once", &[&url], &environment).await.event("done").await;
    assert!(secure.server.calls().await.contains_key("role"), "the server was not asked for its role");
    drop(sentinel);
}

/// Ends a process when it is dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        tied::end(&mut self.0);
    }
}

//! `rediss://`: a server whose certificate our own authority has signed.

use std::path::Path;
use std::process::Command;

use distlock::LockManager;
use redis::{Client, TlsCertificates};

use crate::harness::server::{Server, free_port};

/// A server that also listens for TLS, and what it takes to trust it.
struct Secure {
    server: Server,
    url: String,
    authority: Vec<u8>,
    _files: tempfile::TempDir,
}

async fn secure() -> Secure {
    let files = tempfile::tempdir().unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(files.path(), &format!("req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.pem"));
    let signed =
        "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost";
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
    Secure { server, url: format!("rediss://localhost:{port}"), authority, _files: files }
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

//! `rediss://`: a server whose certificate our own authority has signed.

use distlock::LockManager;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
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
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();

    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let port = free_port().to_string();
    let options = Server::options()
        .directive("tls-port", &port)
        .directive("tls-cert-file", &write("cert.pem", &certificate.pem()))
        .directive("tls-key-file", &write("key.pem", &key.serialize_pem()))
        .directive("tls-ca-cert-file", &write("ca.pem", &authority_pem))
        .directive("tls-auth-clients", "no");
    let server = options.start().await;
    Secure { server, url: format!("rediss://localhost:{port}"), authority: authority_pem.into(), _files: files }
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

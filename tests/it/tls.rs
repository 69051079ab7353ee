//! `rediss://`, `rediss-sentinel://` and `rediss-cluster://`: servers whose certificates our own authority has signed.

use std::path::Path;
use std::process::Command;

use distlock::backend::MemoryBackend;
use distlock::{LockError, LockManager, LockManagerBuilder};
use redis::{Client, TlsCertificates, cmd};

use crate::calls::{Call, FOR_EVER, connect, sees_renewals};
use harness::eventually::{eventually, soon};
use harness::process::{Child, emit};
use harness::server::{Options, Server, free_port};
use harness::tied;

/// A server that also listens for TLS, and what it takes to trust it.
struct Secure {
    server: Server,
    url: String,
    port: String,
    authority: Vec<u8>,
    files: tempfile::TempDir,
}

async fn secure() -> Secure {
    secure_for("no").await
}

/// `clients` says whether clients need a certificate: `yes`, `no`.
async fn secure_for(clients: &str) -> Secure {
    secure_with(clients, Server::options()).await
}

async fn secure_with(clients: &str, options: Options) -> Secure {
    let files = tempfile::tempdir().unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(files.path(), &format!("req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.pem"));
    let signed = "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    openssl(files.path(), &format!("req -x509 {key} {signed} -subj /CN=localhost -keyout key.pem -out cert.pem"));
    openssl(files.path(), &format!("req -x509 {key} {signed} -subj /CN=client -keyout client.key -out client.pem"));
    openssl(files.path(), &format!("req -x509 {key} -subj /CN=stranger -keyout stranger.key -out stranger.pem"));

    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let port = free_port().to_string();
    let options = options
        .directive("tls-port", &port)
        .directive("tls-cert-file", &path("cert.pem"))
        .directive("tls-key-file", &path("key.pem"))
        .directive("tls-ca-cert-file", &path("ca.pem"))
        .directive("tls-auth-clients", clients);
    let server = options.start().await;
    let authority = std::fs::read(files.path().join("ca.pem")).unwrap();
    Secure { server, url: format!("rediss://localhost:{port}"), port, authority, files }
}

impl Secure {
    fn pem(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.files.path().join(name)).unwrap()
    }

    /// Trusts the server.
    fn builder(&self) -> LockManagerBuilder {
        LockManager::builder().url(self.url.as_str()).root_certificates(self.authority.clone())
    }

    /// A sentinel that names the server, and its URL.
    async fn sentinel(&self, clients: &str) -> (Ended, String) {
        let (port, folder) = (free_port(), self.files.path());
        let file = folder.join("sentinel.conf");
        let tls = format!(
            "tls-cert-file cert.pem\ntls-key-file key.pem\ntls-ca-cert-file ca.pem\ntls-auth-clients {clients}\ntls-replication yes"
        );
        let monitor = format!("sentinel monitor secured 127.0.0.1 {} 1", self.port);
        std::fs::write(&file, format!("port 0\ntls-port {port}\n{tls}\nlogfile sentinel.log\n{monitor}\n")).unwrap();
        let mut command = tied::tied("redis-server");
        command.arg(&file).arg("--sentinel").current_dir(folder);
        let sentinel = Ended(tied::spawn(command).await);
        eventually("the sentinel to listen", || async { std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() })
            .await;
        (sentinel, format!("rediss-sentinel://localhost:{port}#secured"))
    }
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
    let (sentinel, url) = secure.sentinel("no").await;
    let authority = secure.files.path().join("ca.pem");
    let environment = [("SSL_CERT_FILE", authority.to_str().unwrap())];
    Child::spawn_with("tls: lock once", &[&url], &environment).await.event("done").await;
    assert!(secure.server.calls().await.contains_key("role"), "the server was not asked for its role");
    drop(sentinel);
}

/// Connects, and takes and frees a lock.
async fn locks(builder: LockManagerBuilder) -> Result<(), LockError> {
    builder.build().await?.lock("k").acquire().await?.release().await
}

/// Requires an error that does not pass, about certificates and with the address.
fn is_not_trusted(error: &LockError, says: &str) {
    let text = error.to_string();
    assert!(!error.is_transient(), "somebody has to mend it: {text}");
    assert!(text.contains("localhost") && text.contains(says) && text.contains("_certificate"), "{says}? {text}");
}

/// Requires that a server which does not accept us is told as that. Where the library misses what the server says of it,
/// which is a race, the error is a passing one.
fn is_not_accepted(error: &LockError) {
    let text = error.to_string();
    assert!(text.contains("localhost") && text.contains("`client_certificate`"), "{text}");
    println!("transient: {}: {text}", error.is_transient());
}

#[tokio::test]
async fn an_authority_of_our_own_is_trusted_in_place_of_those_of_the_system() {
    let secure = secure().await;
    locks(secure.builder()).await.unwrap();
    let error = locks(secure.builder().root_certificates(secure.pem("stranger.pem"))).await.unwrap_err();
    is_not_trusted(&error, "UnknownIssuer");
    let both = [secure.pem("stranger.pem"), secure.pem("ca.pem")].concat();
    locks(secure.builder().root_certificates(both)).await.unwrap();
}

#[tokio::test]
async fn waiting_renewing_and_confirming_go_over_tls_too() {
    let secure = secure().await;
    let manager = || secure.builder().replica_acks(0).build();
    let (holder, waiter) = (manager().await.unwrap(), manager().await.unwrap());
    let call = Call::holding(&holder, "k", std::time::Duration::from_secs(1)).await;
    sees_renewals(&secure.server, "k", 1).await;
    let waiting = tokio::spawn(waiter.lock("k").wait(FOR_EVER).fencing_token(true).acquire());
    let subscribed =
        async || secure.server.query::<Vec<String>>(cmd("PUBSUB").arg("CHANNELS")).await.unwrap().len() == 1;
    eventually("the waiter to subscribe", subscribed).await;
    call.finished().await.unwrap();
    soon("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
    let error = locks(secure.builder().replica_acks(1)).await.unwrap_err();
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_to_know_its_clients_gets_a_certificate() {
    let secure = secure_for("yes").await;
    is_not_accepted(&locks(secure.builder()).await.unwrap_err());
    let stranger = secure.builder().client_certificate(secure.pem("stranger.pem"), secure.pem("stranger.key"));
    is_not_accepted(&locks(stranger).await.unwrap_err());
    locks(secure.builder().client_certificate(secure.pem("client.pem"), secure.pem("client.key"))).await.unwrap();
}

#[tokio::test]
async fn certificates_are_for_sentinels_and_for_servers() {
    let secure = secure_for("yes").await;
    let (_sentinel, url) = secure.sentinel("yes").await;
    let builder = || secure.builder().url(url.as_str());
    is_not_accepted(&locks(builder()).await.unwrap_err());
    let known = || builder().client_certificate(secure.pem("client.pem"), secure.pem("client.key"));
    is_not_trusted(&locks(known().root_certificates(secure.pem("stranger.pem"))).await.unwrap_err(), "UnknownIssuer");
    locks(known()).await.unwrap();
}

/// Nodes tell a client that comes over TLS the ports for that.
#[tokio::test]
async fn the_nodes_of_a_cluster_are_spoken_to_over_tls() {
    let options = Server::options().directive("cluster-enabled", "yes").directive("tls-cluster", "yes");
    let secure = secure_with("yes", options.directive("cluster-port", &free_port().to_string())).await;
    secure.server.query::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383)).await.unwrap();
    let whole = || async {
        let info: String = secure.server.query(cmd("CLUSTER").arg("INFO")).await.unwrap();
        info.contains("cluster_state:ok\r")
    };
    eventually("the cluster of one node", whole).await;
    let url = secure.url.replace("rediss://", "rediss-cluster://");
    let builder = || LockManager::builder().url(url.as_str()).root_certificates(secure.authority.clone());
    let manager =
        builder().client_certificate(secure.pem("client.pem"), secure.pem("client.key")).build().await.unwrap();
    let held = manager.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(manager.lock("k").wait(FOR_EVER).acquire());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let error = builder().build().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn several_servers_are_spoken_to_over_tls() {
    let (first, mut urls) = (secure().await, Vec::new());
    urls.push(first.url.clone());
    let mut others = Vec::new();
    for _ in 0..2 {
        let other = secure().await;
        urls.push(other.url.clone());
        others.push(other);
    }
    let all: Vec<u8> = [&first].into_iter().chain(&others).flat_map(|secure| secure.authority.clone()).collect();
    let manager = LockManager::builder().redlock(urls).root_certificates(all).build().await.unwrap();
    let guard = manager.lock("k").acquire().await.unwrap();
    assert_eq!(others[0].server.keys().await, ["lock:{k}"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn certificates_that_can_not_be_used_are_told_before_anything_is_sent() {
    let secure = secure().await;
    let (certificate, key) = (secure.pem("client.pem"), secure.pem("client.key"));
    let half = key[..key.len() / 2].to_vec();
    let client = |certificate: &[u8], key: &[u8]| secure.builder().client_certificate(certificate, key);
    let cases = [
        (secure.builder().root_certificates(""), "root_certificates", "no certificate"),
        (secure.builder().root_certificates(key.clone()), "root_certificates", "no certificate"),
        (secure.builder().root_certificates(certificate[..200].to_vec()), "root_certificates", "damaged"),
        (client(b"", &key), "client_certificate", "no certificate"),
        (client(&certificate, b""), "client_certificate", "key"),
        (client(&certificate, &half), "client_certificate", "key"),
        (client(&certificate, &certificate), "client_certificate", "key"),
        (client(&certificate, &secure.pem("stranger.key")), "client_certificate", "together"),
        (secure.builder().url("redis://localhost"), "root_certificates", "no TLS"),
        (secure.builder().url("redis+unix:///socket"), "root_certificates", "no TLS"),
        (secure.builder().url("redis-sentinel://localhost#s"), "root_certificates", "no TLS"),
        (secure.builder().url("memory://"), "root_certificates", "no TLS"),
        (secure.builder().backend(MemoryBackend::new()), "root_certificates", "no TLS"),
        (secure.builder().redis_client(Client::open(secure.url.as_str()).unwrap()), "root_certificates", "its own"),
        (LockManager::builder().url("redis://h").client_certificate("", ""), "client_certificate", "no TLS"),
    ];
    let secret = String::from_utf8(key).unwrap();
    for (builder, named, told) in cases {
        let debug = format!("{builder:?}");
        let error = builder.build().await.unwrap_err();
        let LockError::InvalidOption { option, reason, .. } = &error else { panic!("{told}: {error:?}") };
        assert!(*option == named && reason.contains(told), "{named}: {told}? {error}");
        for line in secret.lines().filter(|line| !line.starts_with("--")) {
            assert!(!format!("{debug} {error:?}").contains(line), "the private key is in the text");
        }
    }
}

/// Ends a process when it is dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        tied::end(&mut self.0);
    }
}

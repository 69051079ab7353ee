//! Passwords show in no text that distlock makes: no error with its causes, no `Debug`, no event.

use std::error::Error;
use std::fmt::{Debug, Write};
use std::time::Duration;

use distlock::{LockError, LockManager, LockManagerBuilder};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::calls::{Call, connect, redis_key};
use crate::events::{self, SECRET};
use harness::eventually::eventually;
use harness::sentinel::{Fall, Guarded, Passwords, SERVICE};
use harness::server::{Server, free_port};

/// As a server knows it, and as it stands in a URL.
const PASSWORD: &str = "p@s3cr3t/%:#?";
const ENCODED: &str = "p%40s3cr3t%2F%25%3A%23%3F";

/// All that an error can be made to say.
fn all_of(error: &LockError) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, " {error} {error:?} {error:#?}").unwrap();
        cause = error.source();
    }
    text
}

fn is_kept(what: &str, text: &str) {
    assert!(!text.contains(SECRET), "{what}: the password shows: {text}");
}

fn shows_nothing(what: &str, thing: &dyn Debug) {
    is_kept(what, &format!("{thing:?} {thing:#?}"));
}

fn brief(url: &str) -> LockManagerBuilder {
    LockManager::builder().url(url).connect_timeout(Duration::from_millis(500))
}

/// That this fails, and what it says.
async fn fails(what: &str, url: &str) -> String {
    let builder = brief(url);
    shows_nothing(what, &builder);
    let text = all_of(&builder.build().await.err().unwrap_or_else(|| panic!("{what}: it connects")));
    is_kept(what, &text);
    text
}

/// One with a user who has that password and all rights.
async fn server() -> Server {
    Server::options().user(&format!("holder on >{PASSWORD} ~* &* +@all")).start().await
}

/// Something that answers in no protocol of Redis.
async fn stranger() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move { client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await });
        }
    });
    address
}

/// Everything that is told is listened to, so this also shows that the ear can hear.
#[tokio::test]
async fn the_ear_would_hear_a_password() {
    events::listen();
    tracing::info!(target: "secrets::selftest", "this is {SECRET}");
    assert!(events::leaks().iter().any(|leak| leak.contains("this is")));
}

fn nothing_was_told() {
    let leaks = events::leaks();
    let leaks: Vec<_> = leaks.iter().filter(|leak| !leak.contains("this is")).collect();
    assert!(leaks.is_empty(), "the log has a password: {leaks:?}");
}

#[tokio::test]
async fn a_connection_that_fails_tells_no_password() {
    events::listen();
    let server = server().await;
    let (at, closed) = (server.address(), free_port());
    let frozen = Server::start().await;
    frozen.freeze();
    let told = fails("a wrong password", &format!("redis://holder:{ENCODED}x@{at}")).await;
    assert!(told.contains("WRONGPASS"), "{told}");
    fails("a user that there is not", &format!("redis://nobody:{ENCODED}@{at}")).await;
    fails("no such database", &format!("redis://holder:{ENCODED}@{at}/99")).await;
    fails("a refused connection", &format!("redis://u:{ENCODED}@127.0.0.1:{closed}")).await;
    fails("a silent server", &format!("redis://u:{ENCODED}@{}", frozen.address())).await;
    fails("a name that nobody has", &format!("redis://u:{ENCODED}@no-such-host.invalid")).await;
    fails("no server of Redis", &format!("redis://u:{ENCODED}@{}", stranger().await)).await;
    fails("no socket", &format!("redis+unix:///no/such/socket?pass={ENCODED}")).await;
    fails("no sentinel", &format!("redis-sentinel://u:{ENCODED}@127.0.0.1:{closed}#s")).await;
    let sentinel = format!("?sentinel_user=u&sentinel_password={ENCODED}");
    fails("a server for a sentinel", &format!("redis-sentinel://u:{ENCODED}@{at}{sentinel}#s")).await;
    #[cfg(feature = "tls")]
    fails("no TLS", &format!("rediss://u:{ENCODED}@{at}")).await;
    nothing_was_told();
}

#[tokio::test]
async fn a_url_that_is_wrong_is_told_without_its_password() {
    events::listen();
    for password in [PASSWORD, ENCODED, "s3cr3t", "s3cr3t@", "@s3cr3t", "s3cr3t%", "[s3cr3t]"] {
        for url in [
            format!("http://u:{password}@h"),
            format!("u:{password}@h"),
            format!("redis://u:{password}@"),
            format!("redis://u:{password}@h:99999"),
            format!("redis://u:{password}@h/zero"),
            format!("redis://u:{password}@h?protocol=resp4"),
            format!("redis://u:{password}@[h"),
            format!("redis+unix://h?db=x&pass={password}"),
            format!("memory://{password}"),
            format!("redis-sentinel://u:{password}@h"),
            format!("redis-sentinel://u:{password}@h,h#s"),
            format!("redis-sentinel://u:{password}@h?sentinel_password={password}&sentinel_password=x#s"),
            format!("redis-sentinel://h?sentinel_pass={password}#s"),
            format!("redis-sentinel://h#s?sentinel_password={password}"),
        ] {
            let builder = brief(&url);
            shows_nothing(&url, &builder);
            // Some passwords make of a wrong URL one that only leads nowhere.
            if let Err(error) = builder.build().await {
                is_kept(&url, &all_of(&error));
            }
        }
    }
    nothing_was_told();
}

#[tokio::test]
async fn a_manager_that_fails_later_tells_no_password() {
    events::listen();
    let server = server().await;
    let manager = connect(&format!("redis://holder:{ENCODED}@{}", server.address())).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    shows_nothing("a manager and what it gives", &(&manager, &guard, guard.lease(), manager.lock("k")));
    shows_nothing("a backend", &manager.backend());
    let mut errors = vec![manager.lock("k").retry(1).acquire().await.unwrap_err()];
    server.query::<()>(redis::cmd("LPUSH").arg(redis_key("list")).arg(1)).await.unwrap();
    errors.push(manager.lock("list").retry(1).acquire().await.unwrap_err());
    let call = Call::holding(&manager, "lost", Duration::from_secs(1)).await;
    server.query::<()>(redis::cmd("ACL").arg("SETUSER").arg("holder").arg("-evalsha")).await.unwrap();
    errors.push(manager.lock("l").fencing_token(true).acquire().await.unwrap_err());
    server.kill();
    errors.push(manager.lock("l").retry(2).acquire().await.unwrap_err());
    errors.push(manager.lock("l").wait(Duration::from_millis(200)).acquire().await.unwrap_err());
    errors.push(manager.lock_all(["l", "m"]).fencing_token(true).acquire().await.unwrap_err());
    errors.push(guard.release().await.unwrap_err());
    let lost = call.ended().await.unwrap_err();
    shows_nothing("a loss", &lost);
    server.restart().await;
    server.query::<()>(redis::cmd("ACL").arg("SETUSER").arg("holder").arg("resetpass")).await.unwrap();
    let refused = async || manager.lock("k").acquire().await.is_err_and(|error| !error.is_transient());
    eventually("the password to be refused", refused).await;
    errors.push(manager.lock("k").acquire().await.unwrap_err());
    for error in errors {
        is_kept("an error", &all_of(&error));
    }
    manager.shutdown(Duration::ZERO).await;
    nothing_was_told();
}

#[tokio::test]
async fn neither_those_of_servers_nor_those_of_sentinels_are_told() {
    events::listen();
    // In a configuration of Redis a number sign would begin a comment.
    let passwords = Passwords { servers: Some("server-s3cr3t"), sentinels: Some("sentinel-s3cr3t"), user: None };
    let options = Server::options().password("server-s3cr3t").directive("masterauth", "server-s3cr3t");
    let guarded = Guarded::start_with(1, options, passwords).await;
    let url = |server: &str, sentinel: &str| {
        format!("redis-sentinel://:{server}@{}?sentinel_password={sentinel}#{SERVICE}", guarded.hosts())
    };
    let manager = connect(&url("server%2Ds3cr3t", "sentinel%2Ds3cr3t")).await;
    shows_nothing("a manager", &(&manager, manager.backend()));
    fails("a wrong password of sentinels", &url("server-s3cr3t", "wrong-s3cr3t")).await;
    fails("a wrong password of servers", &url("wrong-s3cr3t", "sentinel-s3cr3t")).await;
    let call = Call::holding(&manager, "k", Duration::from_millis(600)).await;
    guarded.fall(Fall::Killed).await;
    shows_nothing("a loss", &call.ended().await.unwrap_err());
    for sentinel in &guarded.sentinels {
        sentinel.kill();
    }
    fails("no sentinel", &url("server-s3cr3t", "sentinel-s3cr3t")).await;
    nothing_was_told();
}

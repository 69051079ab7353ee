//! Findings of a hostile tester: each test states the right outcome and fails on the code as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use distlock::{LockManager, distributed_lock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use crate::calls::{Body, FOR_EVER, Failure, connect, redis_key, sees_renewals, warm_up};
use crate::harness::eventually::{eventually, soon};
use crate::harness::proxy::{Proxy, Trip, Way};
use crate::harness::server::Server;

/// A: `shutdown` must stop a call whose acquire was in flight when the deadline passed.
#[tokio::test]
async fn a_shutdown_stops_a_call_that_was_acquiring() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    link.delay(Way::Replies, Duration::from_millis(300));
    let body = Body::default();
    let call =
        tokio::spawn(manager.lock("k").ttl(Duration::from_secs(30)).run(body.clone().future(Ok::<_, Failure>(()))));
    eventually("the SET", || async { server.exists(&redis_key("k")).await }).await;
    soon("the shutdown", manager.shutdown(Duration::ZERO)).await;
    let running = body.is_running();
    let key = server.exists(&redis_key("k")).await;
    body.finish();
    let outcome = soon("the call", call).await.unwrap();
    assert!(!running, "the body runs after the shutdown has returned; the call then ended with {outcome:?}");
    assert!(!key, "the key is still held after the shutdown");
}

/// A2: the same with a guard: it must not be handed out, alive and renewed, by a manager that has shut down.
#[tokio::test]
async fn a_shutdown_frees_the_lock_of_an_acquire_that_was_in_flight() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    link.delay(Way::Replies, Duration::from_millis(300));
    let ttl = Duration::from_secs(2);
    let call = tokio::spawn(manager.lock("k").ttl(ttl).acquire());
    eventually("the SET", || async { server.exists(&redis_key("k")).await }).await;
    soon("the shutdown", manager.shutdown(Duration::ZERO)).await;
    let outcome = soon("the call", call).await.unwrap();
    // Two ttls: only a renewed lock is still there.
    tokio::time::sleep(ttl * 2).await;
    assert!(!server.exists(&redis_key("k")).await, "renewed after the shutdown: {outcome:?}");
}

/// B: a call made in the context of a runtime that has ended must fail, and not hang; least of all with a lock taken that
/// the watchdog and all other runtimes need.
#[test]
fn a_call_on_a_runtime_that_has_ended_fails_and_hangs_nobody() {
    let outer = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = outer.block_on(Server::start());
    let manager = outer.block_on(connect(&server.url()));
    let ttl = Duration::from_millis(900);
    // A body that waits: nobody but the watchdog wakes it.
    let call = outer.spawn(manager.lock("other").ttl(ttl).run(std::future::pending::<Result<(), Failure>>()));
    outer.block_on(sees_renewals(&server, "other", 2));
    let ended = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = ended.handle().clone();
    drop(ended);
    let theirs = manager.clone();
    let thread = std::thread::spawn(move || {
        let _inside = handle.enter();
        let mut call = Box::pin(theirs.lock("k").acquire());
        let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    });
    std::thread::sleep(Duration::from_secs(3)); // more than three ttls: the other lock lives by its renewals
    let hangs = !thread.is_finished();
    let other = outer.block_on(async { server.exists(&redis_key("other")).await });
    let stopped = call.is_finished();
    // A thread that hangs would keep the runtime from ending.
    outer.shutdown_background();
    assert!(!hangs, "the first poll of a call hangs for ever; another lock: key held {other}, call stopped {stopped}");
    assert!(other, "the other lock was not renewed meanwhile");
}

/// C: a release is bounded by the smaller of the command timeout and the remaining lease.
#[tokio::test]
async fn a_release_that_has_to_connect_first_is_bounded_by_the_command_timeout() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = LockManager::builder()
        .url(link.url())
        .command_timeout(Duration::from_millis(200))
        .connect_timeout(Duration::from_secs(10))
        .build()
        .await
        .unwrap();
    warm_up(&manager).await;
    let (body, theirs) = (Body::default(), manager.clone());
    let call = tokio::spawn({
        let body = body.clone();
        async move { theirs.lock("k").ttl(Duration::from_secs(30)).run(body.future(Ok::<_, Failure>(7))).await }
    });
    body.runs().await;
    link.blackhole();
    link.reset();
    tokio::time::sleep(Duration::from_millis(100)).await; // the client notices the reset
    let begin = Instant::now();
    body.finish();
    let outcome = soon("the call", call).await.unwrap();
    let took = begin.elapsed();
    assert_eq!(outcome.unwrap(), 7);
    assert!(took < Duration::from_secs(2), "the result was delayed by {took:?}; the command timeout is 200 ms");
}

/// C2: the same with nothing but defaults and a server that stops answering.
#[tokio::test]
async fn a_release_never_outlasts_the_lease() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    let (body, theirs) = (Body::default(), manager.clone());
    let ttl = Duration::from_millis(300);
    let call = tokio::spawn({
        let body = body.clone();
        async move { theirs.lock("k").ttl(ttl).watchdog(false).run(body.future(Ok::<_, Failure>(7))).await }
    });
    body.runs().await;
    link.blackhole();
    link.reset();
    tokio::time::sleep(Duration::from_millis(100)).await; // the client notices the reset
    let begin = Instant::now();
    body.finish();
    let outcome = soon("the call", call).await.unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(1), "the result ({outcome:?}) was delayed by {took:?}; the ttl is {ttl:?}");
}

/// D: a proxy whose client side breaks while the first lock's SET is on its way; the SET arrives 300 ms later.
async fn proxy_that_breaks_and_delivers_late(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, broken) = (server.clone(), broken.clone());
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let replies = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                let mut buffer = vec![0; 16 * 1024];
                loop {
                    let Ok(length) = from_client.read(&mut buffer).await else { return };
                    if length == 0 {
                        return;
                    }
                    let text = String::from_utf8_lossy(&buffer[..length]).to_string();
                    if text.contains("SET") && text.contains("{late}") && !broken.swap(true, Ordering::SeqCst) {
                        replies.abort();
                        let _ = replies.await;
                        drop(from_client);
                        // The request is late: that is the fault.
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        to_server.write_all(&buffer[..length]).await.unwrap();
                        // The connection to the server stays open for longer than the server needs.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        return;
                    }
                    to_server.write_all(&buffer[..length]).await.unwrap();
                }
            });
        }
    });
    format!("redis://{address}")
}

#[tokio::test]
async fn a_set_that_lands_after_its_connection_broke_is_freed() {
    let server = Server::start().await;
    let url = proxy_that_breaks_and_delivers_late(server.address()).await;
    let manager = connect(&url).await;
    warm_up(&manager).await;
    let guard = manager.lock("late").ttl(FOR_EVER).acquire().await.expect("the second sending is granted");
    guard.release().await.expect("and released");
    assert!(!server.exists(&redis_key("late")).await, "freed by the release");
    eventually("the late SET to land", || async { server.exists(&redis_key("late")).await }).await;
    let begin = Instant::now();
    while server.exists(&redis_key("late")).await {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "the key stays, for {} ms",
            server.pttl(&redis_key("late")).await
        );
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
}

/// E: one connection attempt that gets stuck is no reason to lose a lease that has most of its life before it.
#[tokio::test]
async fn one_stuck_connection_attempt_does_not_lose_a_short_lease() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    let guard = manager.lock("k").ttl(Duration::from_millis(1500)).acquire().await.unwrap();
    sees_renewals(&server, "k", 2).await;
    // All connections end; of the new ones, the first is never answered, and all others are sound.
    link.arm("hello", 0, Trip::Silence);
    link.reset();
    link.tripped(1).await;
    tokio::time::sleep(Duration::from_secs(4)).await; // several ttls
    let held = guard.lease().ensure_held();
    assert!(held.is_ok(), "{held:?}");
}

/// F: different argument tuples give different keys.
#[tokio::test]
async fn different_arguments_give_different_keys() {
    #[distributed_lock(key = "<a>%<b>", lease = lease)]
    async fn key(a: &str, b: &str) -> Result<String, Failure> {
        Ok(lease.key().to_owned())
    }
    let locks = LockManager::in_memory();
    let one = locks.scope(key("x%y", "25z")).await.unwrap();
    let other = locks.scope(key("x", "25y%z")).await.unwrap();
    assert_ne!(one, other);
}

struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Err(std::fmt::Error)
    }
}

/// G: no panic in library code: a key that can't be rendered is an `InvalidKey`, as it is in a template.
#[tokio::test]
async fn a_key_expression_that_fails_to_render_is_an_error() {
    #[distributed_lock(key = id)]
    async fn locked(id: Broken) -> Result<(), Failure> {
        let _ = id;
        Ok(())
    }
    let outcome = tokio::spawn(LockManager::in_memory().scope(locked(Broken))).await;
    assert!(outcome.is_ok(), "it panicked: {outcome:?}");
}

/// H: the memory backend needs no runtime; then neither a retry nor a shutdown may panic for want of one.
#[test]
fn a_busy_lock_outside_of_a_runtime_does_not_panic() {
    let (manager, other) = (LockManager::in_memory(), LockManager::in_memory());
    let outcome = std::thread::spawn(move || {
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(manager.lock("k").acquire());
        let std::task::Poll::Ready(Ok(guard)) = first.as_mut().poll(&mut context) else { panic!("not granted") };
        let mut second = Box::pin(manager.lock("k").retry(3).acquire());
        let _ = second.as_mut().poll(&mut context);
        drop(guard);
    })
    .join();
    let shutdown = std::thread::spawn(move || {
        let _ = Box::pin(other.shutdown(Duration::ZERO)).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    })
    .join();
    assert!(
        outcome.is_ok() && shutdown.is_ok(),
        "retry panicked: {}, shutdown panicked: {}",
        outcome.is_err(),
        shutdown.is_err()
    );
}

/// A link on which to connect takes longer than a command does, as it does with TLS: what comes first on each connection is
/// passed on after `handshake`.
async fn proxy_with_slow_connections(server: String, handshake: Duration) -> (String, tokio::sync::watch::Sender<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let resets = tokio::sync::watch::Sender::new(0);
    let end = resets.subscribe();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, mut end) = (server.clone(), end.clone());
            end.mark_unchanged();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                // The handshake.
                tokio::time::sleep(handshake).await;
                tokio::select! {
                    _ = end.changed() => {}
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                }
            });
        }
    });
    (format!("redis://{address}"), resets)
}

/// I: callers who give up early must not keep the manager from ever being connected again.
#[tokio::test]
async fn callers_with_short_patience_do_not_prevent_a_reconnection() {
    let server = Server::start().await;
    let (url, resets) = proxy_with_slow_connections(server.address(), Duration::from_millis(600)).await;
    let manager = connect(&url).await;
    // A connection takes 600 ms, a command about one.
    let patience = Duration::from_millis(400);
    let try_once = async || match tokio::time::timeout(patience, manager.lock("k").acquire()).await {
        Ok(Ok(guard)) => guard.release().await.is_ok(),
        _ => false,
    };
    assert!(try_once().await);
    resets.send_modify(|times| *times += 1);
    tokio::time::sleep(Duration::from_millis(100)).await; // the client notices
    let mut granted = 0;
    for _ in 0..15 {
        granted += u32::from(try_once().await);
    }
    assert!(granted > 0, "not one of 15 calls in 6 s was granted, though the server can be reached all the time");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of somebody's executor");
    }
}

/// J: whatever one caller's executor does, the watchdog goes on for all others.
#[tokio::test]
async fn a_waker_that_panics_does_not_end_the_watchdog() {
    let manager = LockManager::in_memory();
    let ttl = Duration::from_millis(300);
    let mut call =
        Box::pin(manager.lock("theirs").ttl(ttl).watchdog(false).run(std::future::pending::<Result<(), Failure>>()));
    let waker = Waker::from(Arc::new(Panics));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    tokio::time::sleep(ttl * 2).await; // their lease ends
    let guard = manager.lock("ours").ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(ttl * 3).await; // ours is renewed
    assert!(guard.lease().is_held(), "no lock of this manager is renewed any more");
}

/// K: a call that was dropped by a runtime that is not driven afterwards (a synchronous facade with a `block_on` per call).
#[test]
fn a_call_dropped_at_the_end_of_a_block_on_is_freed_about_a_round_trip_later() {
    let outer = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = outer.block_on(Server::start());
    let link = outer.block_on(Proxy::start(&server));
    let (url, proxy) = (link.url(), &link);
    let facade = Builder::new_current_thread().enable_all().build().unwrap();
    let manager = facade.block_on(connect(&url));
    facade.block_on(warm_up(&manager));
    proxy.delay(Way::Replies, Duration::from_millis(50));
    let dropped = facade.block_on(async {
        tokio::time::timeout(Duration::from_millis(25), manager.lock("k").ttl(FOR_EVER).acquire()).await.is_err()
    });
    assert!(dropped);
    let took = outer.block_on(eventually("the key to be freed", || async { !server.exists(&redis_key("k")).await }));
    assert!(took < Duration::from_secs(1), "freed after {took:?}");
}

/// N: a placeholder that renders to blanks is refused, whichever blanks they are.
#[tokio::test]
async fn a_value_of_control_blanks_is_refused_as_spaces_are() {
    #[distributed_lock(key = "order:<id>")]
    async fn locked(id: &str) -> Result<(), Failure> {
        Ok(())
    }
    let locks = LockManager::in_memory();
    assert!(locks.scope(locked("  ")).await.is_err());
    for blank in ["\n", "\t", "\r\n"] {
        assert!(locks.scope(locked(blank)).await.is_err(), "{blank:?} is taken for a value");
    }
}

/// L: the README's least rights are enough for a database other than 0.
#[tokio::test]
async fn the_minimal_rights_are_enough_for_any_database() {
    let rules = "locks on >password resetkeys ~lock:* -@all +set +get +del +pexpire +pttl +eval +evalsha";
    let server = Server::options().user(rules).start().await;
    let url = |database: u32| format!("redis://locks:password@{}/{database}", server.address());
    let manager = connect(&url(0)).await;
    warm_up(&manager).await;
    let three = LockManager::connect(&url(3)).await;
    assert!(three.is_ok(), "{}", three.unwrap_err());
}

/// B2: the same in an ordinary program, without a handle of an ended runtime: runtimes that come, are used and end (as each
/// `#[tokio::test]` has its own) while calls are being made on them.
#[test]
fn runtimes_that_end_while_calls_are_made_on_them_do_end() {
    const ROUNDS: usize = 300;
    let outer = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = outer.block_on(Server::start());
    let manager = outer.block_on(connect(&server.url()));
    let done = Arc::new(AtomicUsize::new(0));
    let (counter, theirs) = (done.clone(), manager.clone());
    std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            for number in 0..8 {
                let manager = theirs.clone();
                runtime.spawn(async move {
                    for _ in 0..number * 3 {
                        tokio::task::yield_now().await;
                    }
                    let _ = manager.lock(format!("{round}-{number}")).acquire().await;
                });
            }
            std::thread::sleep(Duration::from_micros(round as u64 % 60)); // the end comes at different points
            drop(runtime);
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut last = (Instant::now(), 0);
    while last.1 < ROUNDS && last.0.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(50)); // between two looks
        let now = done.load(Ordering::SeqCst);
        if now != last.1 {
            last = (Instant::now(), now);
        }
    }
    // On a thread of its own, since it may hang.
    let elsewhere = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(manager.lock("elsewhere").acquire()).map(drop)
    });
    std::thread::sleep(Duration::from_secs(5)); // more than all timeouts of a call
    let others_hang = !elsewhere.is_finished();
    outer.shutdown_background();
    assert_eq!(last.1, ROUNDS, "the drop of a runtime hangs for ever; calls on other runtimes hang too: {others_hang}");
}

/// C3: both sendings of a release share one timeout, also where the server had forgotten the script.
#[tokio::test]
async fn a_release_by_source_takes_no_second_timeout() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    // The command timeout is 1 s.
    let (body, theirs) = (Body::default(), manager.clone());
    let call = tokio::spawn({
        let body = body.clone();
        async move { theirs.lock("k").ttl(FOR_EVER).run(body.future(Ok::<_, Failure>(7))).await }
    });
    body.runs().await;
    server.flush_scripts().await;
    link.delay(Way::Replies, Duration::from_millis(900));
    let begin = Instant::now();
    body.finish();
    soon("the call", call).await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(1500), "the release took {took:?}; the command timeout is 1 s");
}

/// O: what is left of a lease that `max_hold` cuts short.
#[tokio::test]
async fn remaining_knows_of_max_hold() {
    let ttl = Duration::from_secs(2);
    let guard = LockManager::in_memory().lock("k").ttl(ttl).max_hold(ttl).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await; // 500 ms before the end
    let remaining = guard.lease().remaining();
    assert!(remaining <= Duration::from_millis(500), "{remaining:?} are said to remain of the last 500 ms");
}

/// P: the text says why a server can't be reached.
#[tokio::test]
async fn an_address_that_is_wrong_is_told_with_its_reason() {
    let error = LockManager::connect("redis+unix:///no/such/socket").await.unwrap_err().to_string();
    assert!(!error.contains("refused the connection"), "nobody refused: {error}");
    let error = LockManager::connect("redis://no-such-host.invalid").await.unwrap_err().to_string();
    assert!(error.contains("lookup") || error.contains("resolve") || error.contains("not known"), "no reason: {error}");
}

/// A subscriber like one that prints to a pipe that was closed.
struct PanicsOnAcquired;

impl tracing::Subscriber for PanicsOnAcquired {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(bool);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}") == "lock acquired";
            }
        }
        let mut message = Message(false);
        event.record(&mut message);
        assert!(!message.0, "failed printing to stdout: Broken pipe");
    }

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

/// Q: a panic at any point leaves nothing behind that is renewed.
#[tokio::test]
async fn a_panic_of_the_log_leaves_no_lock_that_is_renewed_for_ever() {
    let manager = LockManager::in_memory();
    let ttl = Duration::from_millis(300);
    let theirs = manager.clone();
    let panicked = std::thread::spawn(move || {
        let _subscriber = tracing::subscriber::set_default(PanicsOnAcquired);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(theirs.lock("k").ttl(ttl).acquire()).map(drop)
    });
    assert!(panicked.join().is_err(), "the subscriber was not asked");
    tokio::time::sleep(ttl * 4).await; // only a renewed lock is still there
    let outcome = manager.lock("k").acquire().await;
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

/// R: a backend from outside that answers for too few entries: those without an answer are tried again.
#[derive(Debug)]
struct AnswersTooFew(distlock::backend::MemoryBackend, AtomicBool, AtomicBool);

impl distlock::backend::Backend for AnswersTooFew {
    fn prepare(&self) -> distlock::backend::BoxFuture<'_, Result<(), distlock::backend::BackendError>> {
        self.0.prepare()
    }

    fn acquire<'a>(
        &'a self,
        entry: distlock::backend::Entry<'a>,
        attempt: distlock::backend::Attempt,
        route: &'a mut Option<Arc<dyn distlock::backend::Route>>,
    ) -> distlock::backend::BoxFuture<'a, Result<distlock::backend::Acquired, distlock::backend::BackendError>> {
        self.0.acquire(entry, attempt, route)
    }

    fn release<'a>(
        &'a self,
        entry: distlock::backend::Entry<'a>,
    ) -> distlock::backend::BoxFuture<'a, Result<distlock::backend::Released, distlock::backend::BackendError>> {
        self.0.release(entry)
    }

    fn renew<'a>(
        &'a self,
        entries: &'a [distlock::backend::Entry<'a>],
    ) -> distlock::backend::BoxFuture<'a, Vec<Result<distlock::backend::Renewed, distlock::backend::BackendError>>>
    {
        if self.1.swap(true, Ordering::SeqCst) { self.0.renew(entries) } else { Box::pin(async { Vec::new() }) }
    }

    fn release_all<'a>(
        &'a self,
        entries: &'a [distlock::backend::Entry<'a>],
    ) -> distlock::backend::BoxFuture<'a, Vec<Result<distlock::backend::Released, distlock::backend::BackendError>>>
    {
        if self.2.swap(true, Ordering::SeqCst) { self.0.release_all(entries) } else { Box::pin(async { Vec::new() }) }
    }
}

#[tokio::test]
async fn an_answer_that_a_backend_leaves_out_is_an_unknown_one() {
    let backend = AnswersTooFew(distlock::backend::MemoryBackend::new(), AtomicBool::default(), AtomicBool::default());
    let manager = LockManager::builder().backend(backend).build().await.unwrap();
    let ttl = Duration::from_millis(600);
    let guard = manager.lock("renewed").ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(ttl * 3).await; // the first renewal is left out, the others are not
    let renewed = guard.lease().ensure_held();
    let released = manager.lock("released").ttl(FOR_EVER).acquire().await.unwrap();
    drop(released);
    tokio::time::sleep(Duration::from_secs(1)).await; // the first release is left out
    let freed = manager.lock("released").acquire().await;
    assert!(renewed.is_ok() && freed.is_ok(), "renewed: {renewed:?}, freed: {freed:?}");
}

async fn connections_received(server: &Server) -> u64 {
    let info = server.info("stats").await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().trim().parse().unwrap()
}

/// S: a server that is no master (READONLY) is met by few connections, as one that refuses them is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_server_is_not_met_by_a_storm_of_connections() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.readonly().await;
    let before = connections_received(&server).await;
    let begin = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..16 {
        let manager = manager.clone();
        callers.spawn(async move {
            let mut calls = 0_u64;
            while begin.elapsed() < Duration::from_secs(3) {
                let request = manager.lock(format!("{caller}")).retry(3);
                assert!(request.acquire().await.unwrap_err().is_transient());
                calls += 1;
            }
            calls
        });
    }
    let calls: u64 = callers.join_all().await.into_iter().sum();
    let made = connections_received(&server).await - before;
    let seconds = begin.elapsed().as_secs_f64();
    // A server that refuses is asked at most every 25 ms.
    assert!((made as f64) < 40.0 * seconds, "{made} connections in {seconds:.1} s, for {calls} calls of 4 attempts");
}

/// T: a future that goes on in another runtime than the one it began in, which has ended: no panic of the library's.
#[test]
fn a_call_that_moves_to_another_runtime_while_it_waits_does_not_panic() {
    let manager = LockManager::in_memory();
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let guard = first.block_on(manager.lock("k").acquire()).unwrap();
    let mut call = Box::pin(manager.lock("k").retry(100).acquire());
    first.block_on(async {
        std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending())).await
    });
    drop(first);
    let second = std::thread::spawn(move || {
        let second = Builder::new_current_thread().enable_all().build().unwrap();
        second.block_on(async {
            drop(guard);
            tokio::time::timeout(Duration::from_secs(10), call).await.map(|granted| granted.map(drop))
        })
    });
    let outcome = second.join();
    assert!(matches!(outcome, Ok(Ok(Ok(())))), "{outcome:?}");
}

/// U: a connection that the server closed while it was idle is no failed release, as it is no failed acquire. Over RESP3 the
/// client is told of the end; over RESP2 the first command finds out.
#[tokio::test]
async fn a_release_over_a_connection_that_was_closed_while_idle_succeeds_over_resp2_too() {
    let server = Server::start().await;
    let manager = connect(&format!("{}/?protocol=resp2", server.url())).await;
    for _ in 0..3 {
        let guard = manager.lock("k").ttl(FOR_EVER).acquire().await.expect("the acquire finds out and connects anew");
        server.kill_clients("normal").await;
        tokio::time::sleep(Duration::from_millis(100)).await; // the client could notice
        let released = guard.release().await;
        assert!(released.is_ok() && !server.exists(&redis_key("k")).await, "{released:?}");
    }
}

//! Readers, writers and those who ask for permits in one line.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{LockManager, LockRequest};
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinHandle;

use super::{Kind, LONG, has_shares, holder, is_refused, nothing_is_left, owned, shares, stand_in_line};
use crate::calls::connect;
use harness::eventually::{eventually, soon, within};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

/// What happened: who got in and who went out, in this order.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<(bool, u32)>>>);

impl Events {
    fn come(&self, name: u32) {
        self.0.lock().unwrap().push((true, name));
    }

    fn go(&self, name: u32) {
        self.0.lock().unwrap().push((false, name));
    }

    /// Who got in, in this order.
    fn came(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().filter(|(comes, _)| *comes).map(|(_, name)| *name).collect()
    }

    /// Fails unless these groups were in one after the other.
    fn one_group_after_the_other(&self, groups: &[&[u32]]) {
        let events = self.0.lock().unwrap();
        let mut rest = &events[..];
        for group in groups {
            let (own, others) = rest.split_at(rest.len().min(2 * group.len()));
            let of_group = own.iter().all(|(_, name)| group.contains(name));
            assert!(of_group && own.len() == 2 * group.len(), "{group:?} is not by itself: {events:?}");
            rest = others;
        }
        assert!(rest.is_empty(), "{events:?}");
    }
}

/// Waits, and once it is in, waits for all of its group to be in.
fn waits(request: LockRequest, name: u32, events: &Events, group: &Arc<Barrier>) -> JoinHandle<()> {
    let (request, events, group) = (request.ttl(LONG).wait(LONG), events.clone(), group.clone());
    tokio::spawn(async move {
        let guard = request.acquire().await.unwrap();
        events.come(name);
        group.wait().await;
        events.go(name);
        guard.release().await.unwrap();
    })
}

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        soon("a waiter to get its turn with those of its group", task).await.unwrap();
    }
}

#[tokio::test]
async fn all_kinds_are_served_in_the_order_in_which_they_came_and_neighbours_of_a_kind_together() {
    let server = Server::start().await;
    let held = owned(&server, "holder").await.lock("k").acquire().await.unwrap();
    let groups: [(Kind, &[u32]); 7] = [
        (Kind::Read, &[0]),
        (Kind::Write, &[1]),
        (Kind::Read, &[2, 3, 4]),
        (Kind::Plain, &[5]),
        (Kind::Permits(2), &[6, 7]),
        (Kind::Read, &[8, 9]),
        (Kind::Write, &[10]),
    ];
    let (events, mut tasks) = (Events::default(), Vec::new());
    for (kind, names) in groups {
        let together = Arc::new(Barrier::new(names.len()));
        for name in names {
            let manager = connect(&server.url()).await;
            tasks.push(waits(kind.lock(&manager, "k"), *name, &events, &together));
            stand_in_line(&server, "k", u64::from(*name) + 1).await;
        }
    }
    held.release().await.unwrap();
    all(tasks).await;
    events.one_group_after_the_other(&groups.map(|(_, names)| names));
    nothing_is_left(&server).await;
}

async fn readers_behind_a_writer(server: &Server, managers: Vec<LockManager>) {
    let writer = Kind::Write.lock(&connect(&server.url()).await, "k").acquire().await.unwrap();
    let (events, together) = (Events::default(), Arc::new(Barrier::new(managers.len())));
    let mut tasks = Vec::new();
    for (name, manager) in (0..).zip(&managers) {
        tasks.push(waits(Kind::Read.lock(manager, "k"), name, &events, &together));
        tokio::task::yield_now().await;
    }
    eventually("them to stand in line", || async { server.exists(&super::line_of("k")).await }).await;
    assert_eq!(events.came(), [0; 0]);
    writer.release().await.unwrap();
    all(tasks).await;
    nothing_is_left(server).await;
}

#[tokio::test]
async fn all_readers_behind_a_writer_get_in_together_when_it_releases() {
    let server = Server::start().await;
    let mut managers = Vec::new();
    for _ in 0..10 {
        managers.push(connect(&server.url()).await);
    }
    readers_behind_a_writer(&server, managers).await;
}

#[tokio::test]
async fn so_do_the_readers_of_one_manager() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    readers_behind_a_writer(&server, vec![manager; 10]).await;
}

#[tokio::test]
async fn so_do_as_many_as_there_are_permits_and_never_more() {
    let server = Server::start().await;
    for managers in [1, 6] {
        let held = connect(&server.url()).await.lock("k").acquire().await.unwrap();
        // Each third one lets three go.
        let (together, inside) = (Arc::new(Barrier::new(3)), Arc::new(AtomicUsize::new(0)));
        let mut owners = Vec::new();
        for _ in 0..managers {
            owners.push(connect(&server.url()).await);
        }
        let tasks = (0..6).map(|name| {
            let request = Kind::Permits(3).lock(&owners[name % managers], "k").ttl(LONG).wait(LONG);
            let (together, inside) = (together.clone(), inside.clone());
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                let before = inside.fetch_add(1, Ordering::SeqCst);
                assert!(before < 3, "{} at once", before + 1);
                together.wait().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        });
        let tasks: Vec<_> = tasks.collect();
        eventually("them to stand in line", || async { server.exists(&super::line_of("k")).await }).await;
        held.release().await.unwrap();
        all(tasks).await;
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn callers_of_one_manager_are_served_in_their_order_whatever_their_kinds() {
    let server = Server::start().await;
    let (another, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = another.lock("k").acquire().await.unwrap();
    let (events, alone) = (Events::default(), Arc::new(Barrier::new(1)));
    let mut tasks = Vec::new();
    let kinds = [Kind::Read, Kind::Write, Kind::Read, Kind::Permits(1), Kind::Plain, Kind::Permits(1)];
    for (name, kind) in (0..).zip(kinds) {
        tasks.push(waits(kind.lock(&manager, "k"), name, &events, &alone));
        tokio::task::yield_now().await;
    }
    eventually("them to stand in line", || async { server.exists(&super::line_of("k")).await }).await;
    held.release().await.unwrap();
    all(tasks).await;
    events.one_group_after_the_other(&[&[0], &[1], &[2], &[3], &[4], &[5]]);
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn one_that_waits_joins_those_who_hold_as_long_as_nobody_else_waits() {
    let server = Server::start().await;
    for kind in [Kind::Read, Kind::Permits(3)] {
        let mut guards = vec![kind.lock(&connect(&server.url()).await, "k").acquire().await.unwrap()];
        let manager = connect(&server.url()).await;
        for _ in 0..2 {
            let request = kind.lock(&manager, "k").wait(LONG);
            guards.push(soon("it to join", request.acquire()).await.unwrap());
        }
        has_shares(&server, "k", 3).await;
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert_eq!(server.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_reader_that_comes_after_a_waiting_writer_gets_in_after_it() {
    let server = Server::start().await;
    let (one, two, three) = (owned(&server, "one").await, owned(&server, "two").await, owned(&server, "three").await);
    let reader = Kind::Read.lock(&one, "k").acquire().await.unwrap();
    let (events, alone) = (Events::default(), Arc::new(Barrier::new(1)));
    let writer = waits(Kind::Write.lock(&two, "k"), 1, &events, &alone);
    stand_in_line(&server, "k", 1).await;
    let late = waits(Kind::Read.lock(&three, "k"), 2, &events, &alone);
    stand_in_line(&server, "k", 2).await;
    // Nor does one get past them that doesn't wait, or that tries again.
    assert_eq!(is_refused(Kind::Read.lock(&three, "k")).await, "two, which waits for it");
    let short = Kind::Read.lock(&one, "k").wait(Duration::from_millis(300)).acquire().await;
    assert!(!holder(short).is_empty());
    assert_eq!(events.came(), [0; 0]);
    reader.release().await.unwrap();
    all(vec![writer, late]).await;
    events.one_group_after_the_other(&[&[1], &[2]]);
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn readers_behind_a_writer_that_gives_up_join_those_who_hold() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let reader = Kind::Read.lock(&managers[0], "k").ttl(LONG).acquire().await.unwrap();
    // One whose time is over, one that is dropped.
    for gives_up_by_itself in [true, false] {
        let patience = if gives_up_by_itself { Duration::from_secs(2) } else { LONG };
        let writer = tokio::spawn(Kind::Write.lock(&managers[1], "k").wait(patience).acquire());
        stand_in_line(&server, "k", 1).await;
        let late = tokio::spawn(Kind::Read.lock(&managers[2], "k").wait(LONG).acquire());
        stand_in_line(&server, "k", 2).await;
        if gives_up_by_itself {
            assert!(!holder(soon("the writer to give up", writer).await.unwrap()).is_empty());
        } else {
            writer.abort();
            assert!(writer.await.unwrap_err().is_cancelled());
        }
        let late = soon("the late reader", late).await.unwrap().unwrap();
        reader.lease().ensure_held().unwrap();
        late.release().await.unwrap();
    }
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn those_who_wait_for_permits_get_them_one_by_one_in_their_order() {
    let server = Server::start().await;
    let first = owned(&server, "first").await;
    let permit = |manager: &LockManager| Kind::Permits(2).lock(manager, "k").ttl(LONG);
    let held = [permit(&first).acquire().await.unwrap(), permit(&first).acquire().await.unwrap()];
    let events = Events::default();
    let (mut tasks, mut ends) = (Vec::new(), Vec::new());
    for name in 0..5 {
        let (request, events, end) =
            (permit(&connect(&server.url()).await).wait(LONG), events.clone(), Arc::new(Notify::new()));
        ends.push(end.clone());
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            events.come(name);
            end.notified().await;
            guard.release().await.unwrap();
        }));
        stand_in_line(&server, "k", u64::from(name) + 1).await;
    }
    let [one, other] = held;
    one.release().await.unwrap();
    for (count, end) in (1..).zip(ends) {
        eventually("the next one", || async { events.came().len() == count }).await;
        assert_eq!(events.came(), (0..u32::try_from(count).unwrap()).collect::<Vec<_>>());
        is_refused(permit(&first)).await;
        end.notify_one();
    }
    all(tasks).await;
    other.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// Each waits for nothing but its own answer.
#[tokio::test]
async fn those_of_one_manager_who_find_nothing_in_their_way_ask_at_the_same_time() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    for kind in [Kind::Read, Kind::Permits(10)] {
        // Its scripts are there by then.
        kind.lock(&manager, "k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
        link.hold(Way::Replies);
        let calls: Vec<_> =
            (0..10).map(|_| tokio::spawn(kind.lock(&manager, "k").ttl(LONG).wait(LONG).acquire())).collect();
        // Less than the five seconds after which nobody waits for one that has no answer.
        within(Duration::from_secs(4), "all to have asked", || async { shares(&server, "k").await.len() == 10 }).await;
        link.pass();
        for call in calls {
            soon("its answer", call).await.unwrap().unwrap().release().await.unwrap();
        }
        nothing_is_left(&server).await;
    }
}

/// Only the first of them stands in the server's line, where the writer comes behind it.
#[tokio::test]
async fn readers_of_one_manager_that_came_before_a_writer_get_in_with_each_other() {
    let server = Server::start().await;
    let (another, readers) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = another.lock("k").acquire().await.unwrap();
    let (events, together) = (Events::default(), Arc::new(Barrier::new(6)));
    let mut tasks = Vec::new();
    for name in 0..5 {
        tasks.push(waits(Kind::Read.lock(&readers, "k"), name, &events, &together));
        tokio::task::yield_now().await;
    }
    stand_in_line(&server, "k", 1).await;
    let writer = connect(&server.url()).await;
    tasks.push(waits(Kind::Write.lock(&writer, "k"), 5, &events, &Arc::new(Barrier::new(1))));
    stand_in_line(&server, "k", 2).await;
    held.release().await.unwrap();
    eventually("the five", || async { events.came().len() == 5 }).await;
    // One that comes now came after the writer.
    tasks.push(waits(Kind::Read.lock(&readers, "k"), 6, &events, &Arc::new(Barrier::new(1))));
    stand_in_line(&server, "k", 2).await;
    soon("the five to be let go", together.wait()).await;
    all(tasks).await;
    events.one_group_after_the_other(&[&[0, 1, 2, 3, 4], &[5], &[6]]);
    nothing_is_left(&server).await;
}

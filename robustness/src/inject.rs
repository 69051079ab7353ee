//! Making things fail, one after the other, and mending them. How long a fault lasts is part of the plan.

use std::time::{Duration, Instant};

use harness::holders::now;
use harness::proxy::{Proxy, Trip, Way};
use harness::sentinel::Sentinel;
use harness::server::Server;
use redis::cmd;
use tokio::time::sleep;

use crate::client::TTL;
use crate::clients::Clients;
use crate::loss::{Ahead, Broken, CLIENTS, Loss, SAVED, SERVER, STEP, STEP_OF_ONE};
use crate::plan::{Fault, FaultKind};
use crate::rights;
use crate::settings::Topology;
use crate::world::World;

/// The faults of clients and of their ways to the servers.
pub(crate) async fn break_clients(world: &World, clients: &mut Clients, faults: &[Fault], until: Instant) -> usize {
    one_by_one(world, faults, until, async |fault| of_client(world, clients, fault).await).await
}

/// Makes faults until it is time to end, and says how many. What makes one tells who was hit.
async fn one_by_one(
    world: &World,
    faults: &[Fault],
    until: Instant,
    mut strike: impl AsyncFnMut(&Fault) -> String,
) -> usize {
    let mut made = 0;
    for fault in faults {
        // How long all goes well is part of the plan.
        sleep(fault.after).await;
        if Instant::now() >= until {
            break;
        }
        world.note(&format!("fault {fault}"));
        let from = now();
        let who = strike(fault).await;
        // Who was killed does not come back.
        let to = if fault.kind == FaultKind::Kill { u64::MAX } else { now() };
        world.note(&Broken { who, from, to }.line());
        world.note(&format!("fault end of {:?} of {}", fault.kind, fault.victim));
        made += 1;
    }
    made
}

async fn of_client(world: &World, clients: &mut Clients, fault: &Fault) -> String {
    let client = &clients.all[fault.victim];
    let who = client.number.to_string();
    match fault.kind {
        FaultKind::Stop => {
            client.child.stop();
            sleep(fault.lasts).await;
            client.child.cont();
        }
        FaultKind::Kill => clients.replace(world, fault.victim).await,
        FaultKind::StepClient(seconds) => {
            client.clock.jump_to(seconds);
            sleep(fault.lasts).await;
            client.clock.jump_to(0);
        }
        kind => {
            let is_shared = client.links.is_empty();
            let links = if is_shared { world.shared(fault.victim) } else { &client.links };
            break_links(links, kind, fault.lasts).await;
            links.iter().for_each(Proxy::pass);
            if is_shared {
                return CLIENTS.to_owned();
            }
        }
    }
    who
}

async fn break_links(links: &[Proxy], kind: FaultKind, lasts: Duration) {
    match kind {
        FaultKind::BlackHole => links.iter().for_each(Proxy::blackhole),
        FaultKind::SlowReplies(millis) => slow(links, millis),
        FaultKind::SlowThenDeaf(millis) => {
            slow(links, millis);
            // Long enough for a renewal.
            sleep(TTL / 2).await;
            links.iter().for_each(Proxy::blackhole);
            sleep(TTL).await;
        }
        FaultKind::LostReplies => links.iter().for_each(|link| link.hold(Way::Replies)),
        FaultKind::LateReply => links.iter().for_each(|link| link.arm("lock:", 0, Trip::LateReply(TTL))),
        FaultKind::LateRequest => links.iter().for_each(|link| link.arm("lock:", 0, Trip::Late(TTL))),
        FaultKind::Refuse => {
            for link in links {
                link.refuse().await;
            }
        }
        _ => {}
    }
    sleep(lasts).await;
    match kind {
        FaultKind::LostReplies => links.iter().for_each(Proxy::reset),
        FaultKind::Refuse => {
            for link in links {
                link.accept().await;
            }
        }
        _ => {}
    }
}

fn slow(links: &[Proxy], millis: u64) {
    for link in links {
        link.delay(Way::Replies, Duration::from_millis(millis));
    }
}

/// The faults of servers.
pub(crate) async fn break_servers(world: &World, faults: &[Fault], until: Instant) -> usize {
    one_by_one(world, faults, until, async |fault| {
        of_server(world, fault).await;
        SERVER.to_owned()
    })
    .await
}

async fn of_server(world: &World, fault: &Fault) {
    let primaries = world.primaries().await;
    let Some(server) = primaries.get(fault.victim % primaries.len().max(1)) else { return };
    let (keys, from) = (world.locks_of(server).await, now());
    strike(world, server, fault).await;
    world.answers(server).await;
    world.settles().await;
    // What only pauses a primary may take so long that it counts as dead.
    if !fault.kind.may_replace() && world.has_replicas() && !server.is_primary().await {
        lost(world, world.failover(), keys, [from, now(), now()]);
    }
}

async fn strike(world: &World, server: &Server, fault: &Fault) {
    match fault.kind {
        FaultKind::Freeze | FaultKind::Crash | FaultKind::Failover | FaultKind::Isolate => {
            replace(world, server, fault).await;
        }
        FaultKind::Restart | FaultKind::RestartWithData | FaultKind::ShutDown => restart(world, server, fault).await,
        FaultKind::Flush => {
            let (keys, from) = (world.locks_of(server).await, now());
            let _ = server.query::<()>(&cmd("FLUSHALL")).await;
            lost(world, "flush", keys, [from, now(), now()]);
        }
        FaultKind::StepServer(seconds) => step(world, server, fault, seconds).await,
        FaultKind::MoveSlot => world.move_slot(fault.victim, fault.lasts).await,
        FaultKind::FreezeSentinels(many) => {
            let frozen = || world.sentinels().iter().cycle().skip(fault.victim).take(many);
            frozen().for_each(Sentinel::freeze);
            sleep(fault.lasts).await;
            frozen().for_each(Sentinel::thaw);
        }
        FaultKind::RestartSentinel => {
            let sentinel = &world.sentinels()[fault.victim % world.sentinels().len()];
            sentinel.kill();
            sleep(fault.lasts).await;
            sentinel.restart().await;
        }
        FaultKind::Forbid(right) => {
            rights::take(server, right).await;
            sleep(fault.lasts).await;
            rights::give_back(server, world.topology).await;
        }
        kind => without_loss(server, kind, fault.lasts).await,
    }
}

/// Writes down that a server has forgotten, at some moment between the first two times, and answers since the third.
fn lost(world: &World, why: &str, keys: Vec<String>, [from, to, back]: [u64; 3]) {
    world.journal.note_at(from, "-", &Loss { why: why.to_owned(), from, to, back, keys }.line());
}

/// What may make another server the primary. What the old one has granted and not passed on is lost then.
async fn replace(world: &World, server: &Server, fault: &Fault) {
    let has_replicas = world.has_replicas();
    // Long enough to be taken for dead, more often than not.
    let lasts = if has_replicas { fault.lasts * 4 } else { fault.lasts };
    let (keys, from) = (world.locks_of(server).await, now());
    match fault.kind {
        FaultKind::Freeze => {
            server.freeze();
            sleep(lasts).await;
            server.thaw();
        }
        FaultKind::Crash => {
            server.kill();
            // What is asked for from now on is granted by the successor, and stays: nobody goes back to the one that has forgotten.
            let to = now();
            world.is_replaced(server).await;
            lost(world, world.failover(), keys, [from, to, now()]);
            return server.restart().await;
        }
        FaultKind::Isolate => {
            world.isolate(server, true);
            sleep(lasts).await;
            world.isolate(server, false);
        }
        _ => {
            world.fail_over(server, fault.victim).await;
            // The old primary takes writes until it has heard of it.
            sleep(TTL).await;
        }
    }
    if !has_replicas {
        return;
    }
    tokio::select! {
        () = world.settles() => {}
        // The old one goes on to take writes for some ten seconds, and none of them are ours.
        () = world.is_left(server), if world.topology == Topology::Sentinel => {}
    }
    let to = now();
    // Where it is still the primary, nothing was lost. That is known only when all agree.
    world.settles().await;
    if !server.is_primary().await {
        lost(world, world.failover(), keys, [from, to, to]);
    }
}

async fn restart(world: &World, server: &Server, fault: &Fault) {
    if fault.kind == FaultKind::ShutDown {
        server.shut_down().await;
        sleep(fault.lasts).await;
        return server.relaunch().await;
    }
    if world.topology == Topology::Redlock {
        // One that has forgotten must stay away until all it had granted is over.
        server.kill();
        sleep(fault.lasts.max(TTL + Duration::from_millis(300))).await;
        return server.restart().await;
    }
    let (keys, from) = (world.locks_of(server).await, now());
    let is_saved = fault.kind == FaultKind::RestartWithData && server.query::<()>(&cmd("SAVE")).await.is_ok();
    server.kill();
    // Nothing is granted before it is back.
    let to = now();
    if is_saved {
        server.relaunch().await;
    } else {
        sleep(fault.lasts).await;
        server.restart().await;
    }
    if world.topology == Topology::Sentinel {
        // As its configuration would say, which sentinels rewrite: it was the primary when it was killed.
        let _ = server.query::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    }
    let back = now();
    world.settles().await;
    if server.is_primary().await {
        lost(world, if is_saved { SAVED } else { "restart" }, keys, [from, to, back]);
    } else {
        // One has forgotten, and then another one took its place.
        lost(world, "restart and failover", keys, [from, now(), now()]);
    }
}

/// Sets the clock of a server, for some time. Leases end when it goes forward, there or back, and only what was granted before that.
async fn step(world: &World, server: &Server, fault: &Fault, seconds: i64) {
    let clock = server.clock().expect("each has its own");
    let why = if world.topology == Topology::Redlock { STEP_OF_ONE } else { STEP };
    let (keys, begin) = (world.locks_of(server).await, now());
    for (to, is_forward) in [(seconds, seconds > 0), (0, seconds < 0)] {
        let from = now();
        clock.jump_to(to);
        // A server looks at its clock when it begins with a batch of requests.
        sleep(Duration::from_millis(5)).await;
        if is_forward {
            lost(world, why, keys.clone(), [from, now(), now()]);
        }
        if to != 0 {
            sleep(fault.lasts).await;
        }
    }
    let by = Duration::from_secs(seconds.max(0).unsigned_abs());
    if !by.is_zero() {
        world.note(&Ahead { from: begin, to: now(), by }.line());
    }
    if world.topology == Topology::Redlock {
        // Fencing tokens are ahead by so much. They rise as long as clocks agree, or nobody forgets: no data is lost until then.
        sleep(fault.lasts + by).await;
    }
}

async fn without_loss(server: &Server, kind: FaultKind, lasts: Duration) {
    let say = async |command: &mut redis::Cmd| {
        // It may be away by an earlier fault's end, and then it has one.
        let _ = server.query::<()>(command).await;
    };
    match kind {
        FaultKind::Pause => {
            let millis = u64::try_from(lasts.as_millis()).unwrap_or(500);
            say(cmd("CLIENT").arg("PAUSE").arg(millis)).await;
        }
        FaultKind::Disconnect => {
            for kind in ["normal", "pubsub"] {
                say(cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind)).await;
            }
        }
        FaultKind::ForgetScripts => say(cmd("SCRIPT").arg("FLUSH")).await,
        FaultKind::OutOfMemory => {
            say(cmd("CONFIG").arg("SET").arg("maxmemory").arg(1)).await;
            sleep(lasts).await;
            say(cmd("CONFIG").arg("SET").arg("maxmemory").arg(0)).await;
        }
        _ => {}
    }
    sleep(lasts).await;
}

//! Making things fail, one after the other, and mending them. How long a fault lasts is part of the plan.

use std::time::{Duration, Instant};

use harness::proxy::{Proxy, Trip, Way};
use harness::sentinel::Sentinel;
use harness::server::Server;
use redis::cmd;
use tokio::time::sleep;

use crate::client::TTL;
use crate::clients::Clients;
use crate::history::{STEP, STEP_OF_ONE};
use crate::plan::{Fault, FaultKind};
use crate::rights;
use crate::settings::Topology;
use crate::world::World;

/// The faults of clients and of their ways to the servers.
pub(crate) async fn break_clients(world: &World, clients: &mut Clients, faults: &[Fault], until: Instant) -> usize {
    one_by_one(world, faults, until, async |fault| of_client(world, clients, fault).await).await
}

/// Makes faults until it is time to end, and says how many.
async fn one_by_one(world: &World, faults: &[Fault], until: Instant, mut strike: impl AsyncFnMut(&Fault)) -> usize {
    let mut made = 0;
    for fault in faults {
        // How long all goes well is part of the plan.
        sleep(fault.after).await;
        if Instant::now() >= until {
            break;
        }
        world.note(&format!("fault {fault}"));
        strike(fault).await;
        world.note(&format!("fault end of {:?} of {}", fault.kind, fault.victim));
        made += 1;
    }
    made
}

async fn of_client(world: &World, clients: &mut Clients, fault: &Fault) {
    let client = &clients.all[fault.victim];
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
            let links = if client.links.is_empty() { world.shared(fault.victim) } else { &client.links };
            break_links(links, kind, fault.lasts).await;
            links.iter().for_each(Proxy::pass);
        }
    }
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
    one_by_one(world, faults, until, async |fault| of_server(world, fault).await).await
}

async fn of_server(world: &World, fault: &Fault) {
    let primaries = world.primaries().await;
    let Some(server) = primaries.get(fault.victim % primaries.len().max(1)) else { return };
    match fault.kind {
        FaultKind::Freeze | FaultKind::Crash | FaultKind::Failover | FaultKind::Isolate => {
            replace(world, server, fault).await;
        }
        FaultKind::Restart | FaultKind::RestartWithData | FaultKind::ShutDown => restart(world, server, fault).await,
        FaultKind::Flush => {
            losing(world, "flush");
            let _ = server.query::<()>(&cmd("FLUSHALL")).await;
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
    world.answers(server).await;
    world.settles().await;
    world.note("kept");
}

fn losing(world: &World, why: &str) {
    world.note(&format!("losing {why}"));
}

/// What may make another server the primary. What the old one has granted and not passed on is lost then.
async fn replace(world: &World, server: &Server, fault: &Fault) {
    let has_replicas = matches!(world.topology, Topology::Sentinel | Topology::Cluster);
    if has_replicas {
        losing(world, world.failover());
    }
    // Long enough to be taken for dead, more often than not.
    let lasts = if has_replicas { fault.lasts * 4 } else { fault.lasts };
    match fault.kind {
        FaultKind::Freeze => {
            server.freeze();
            sleep(lasts).await;
            server.thaw();
        }
        FaultKind::Crash => {
            server.kill();
            // What is asked for from now on is granted by the successor, and stays: nobody goes back to the one that has forgotten.
            world.note("kept");
            world.is_replaced(server).await;
            server.restart().await;
        }
        FaultKind::Isolate => {
            world.isolate(server, true);
            sleep(lasts).await;
            world.isolate(server, false);
        }
        _ => {
            world.fail_over(fault.victim).await;
            // The old primary takes writes until it has heard of it.
            sleep(TTL).await;
        }
    }
    if world.topology == Topology::Sentinel && fault.kind != FaultKind::Crash {
        tokio::select! {
            () = world.settles() => {}
            // The old one goes on to take writes for some ten seconds, and none of them are ours.
            () = world.is_left(server) => world.note("kept"),
        }
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
    losing(world, "restart");
    if fault.kind == FaultKind::RestartWithData {
        server.restart_with_data().await;
    } else {
        server.kill();
        sleep(fault.lasts).await;
        server.restart().await;
    }
    if world.topology == Topology::Sentinel {
        // As its configuration would say, which sentinels rewrite: it was the primary when it was killed.
        let _ = server.query::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    }
}

/// Sets the clock of a server, for some time.
async fn step(world: &World, server: &Server, fault: &Fault, seconds: i64) {
    let clock = server.clock().expect("each has its own");
    if world.topology != Topology::Redlock {
        losing(world, STEP);
        clock.jump_to(seconds);
        sleep(fault.lasts).await;
        return clock.jump_to(0);
    }
    // Of several servers only a step forward can do harm, there or back, and only to what was granted before.
    for (to, is_forward) in [(seconds, seconds > 0), (0, seconds < 0)] {
        if is_forward {
            losing(world, STEP_OF_ONE);
        }
        clock.jump_to(to);
        world.note("kept");
        sleep(fault.lasts).await;
    }
    // Fencing tokens are ahead by so much. They rise as long as clocks agree, or nobody forgets: no data is lost until then.
    sleep(Duration::from_secs(seconds.max(0).unsigned_abs())).await;
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

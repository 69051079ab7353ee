//! Making things fail, one after the other, and mending them.

use std::time::{Duration, Instant};

use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;
use redis::cmd;
use tokio::time::sleep;

use crate::client::TTL;
use crate::clients::Clients;
use crate::plan::{Fault, FaultKind};
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
            break_links(&client.links, kind, fault.lasts).await;
            client.links.iter().for_each(Proxy::pass);
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
    // A majority still knows what one of several independent servers has lost.
    let loses = world.topology != Topology::Redlock;
    // What a primary has granted and not passed on is lost when it is replaced.
    let is_replaced = matches!(world.topology, Topology::Sentinel | Topology::Cluster);
    match fault.kind {
        FaultKind::Freeze => {
            losing(world, is_replaced, "failover");
            server.freeze();
            sleep(fault.lasts * if is_replaced { 4 } else { 1 }).await;
            server.thaw();
        }
        FaultKind::Restart => restart(world, server, fault, false).await,
        FaultKind::RestartWithData => restart(world, server, fault, true).await,
        FaultKind::Flush => {
            losing(world, loses, "flush");
            let _ = server.query::<()>(&cmd("FLUSHALL")).await;
        }
        FaultKind::StepServer(seconds) => {
            losing(world, true, "step of the clock");
            world.clock.jump_to(seconds);
            sleep(fault.lasts).await;
            world.clock.jump_to(0);
        }
        FaultKind::Failover => {
            losing(world, true, "failover");
            world.fail_over(fault.victim).await;
            // The old primary takes writes until it has heard of it.
            sleep(TTL).await;
        }
        kind => without_loss(server, kind, fault.lasts).await,
    }
    world.answers(server).await;
    world.settles().await;
    world.note("kept");
}

fn losing(world: &World, loses: bool, why: &str) {
    if loses {
        world.note(&format!("losing {why}"));
    }
}

async fn restart(world: &World, server: &Server, fault: &Fault, with_data: bool) {
    if world.topology == Topology::Redlock {
        // One that has forgotten must stay away until all it had granted is over.
        server.kill();
        sleep(fault.lasts.max(TTL + Duration::from_millis(300))).await;
        server.restart().await;
        return;
    }
    losing(world, true, "restart");
    if with_data {
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

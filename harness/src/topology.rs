//! Running the tests of a single server over another topology: `DISTLOCK_TOPOLOGY=cluster` or `sentinel`.
//!
//! Then each plain server is a cluster of one node, with all slots, or is looked after by a sentinel of its own. All that
//! tests look at stands on that one server as before, and only the way there is another one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use redis::cmd;

use crate::eventually::eventually;
use crate::sentinel::{Passwords, SERVICE, Sentinel};
use crate::server::Server;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    Single,
    Cluster,
    Sentinel,
}

/// The topology that this run of the tests is for.
pub fn topology() -> Topology {
    match std::env::var("DISTLOCK_TOPOLOGY").as_deref() {
        Err(_) | Ok("") => Topology::Single,
        Ok("cluster") => Topology::Cluster,
        Ok("sentinel") => Topology::Sentinel,
        Ok(other) => panic!("DISTLOCK_TOPOLOGY is `{other}`, and not `cluster` or `sentinel`"),
    }
}

/// The sentinels, by the address of the server that each looks after.
static SENTINELS: Mutex<Option<HashMap<String, Sentinel>>> = Mutex::new(None);

fn sentinels<T>(with: impl FnOnce(&mut HashMap<String, Sentinel>) -> T) -> T {
    with(SENTINELS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Makes a server that has just been started what the topology wants.
pub(crate) async fn join(server: &Server) {
    match topology() {
        Topology::Single => {}
        Topology::Cluster => {
            server.query::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383)).await.unwrap();
            let whole = || async {
                let info: String = server.query(cmd("CLUSTER").arg("INFO")).await.unwrap();
                info.contains("cluster_state:ok\r")
            };
            eventually("the cluster of one node", whole).await;
        }
        Topology::Sentinel => {
            let sentinel = Sentinel::start(server, &Passwords::default()).await;
            sentinels(|all| all.insert(server.address(), sentinel));
        }
    }
}

/// Ends what was started for a server.
pub(crate) fn leave(server: &Server) {
    if topology() == Topology::Sentinel {
        let sentinel = sentinels(|all| all.remove(&server.address()));
        drop(sentinel);
    }
}

/// The URL by which the library reaches a plain server.
pub fn url(plain: &str) -> String {
    let Some(address) = plain.strip_prefix("redis://") else { return plain.to_owned() };
    match topology() {
        Topology::Single => plain.to_owned(),
        Topology::Cluster => format!("redis-cluster://{address}"),
        // A proxy, say, is nobody's primary.
        Topology::Sentinel => match sentinels(|all| all.get(address).map(Sentinel::address)) {
            Some(sentinel) => format!("redis-sentinel://{sentinel}#{SERVICE}"),
            None => plain.to_owned(),
        },
    }
}

//! The user that clients log in as, and what of its rights is taken away. The harness, replicas and sentinels are another one, who may
//! do everything at any time.

use harness::server::Server;
use redis::cmd;

use crate::settings::Topology;

const README: &str = include_str!("../../README.md");
const TOPOLOGIES: &str = include_str!("../../TOPOLOGIES.md");

/// The name, by which a link knows the connections of clients, too.
pub(crate) const USER: &str = "locks";

/// What is taken away: one right, of each of which a request needs another part, or all, or the keys; or nobody can log in any more.
pub(crate) const TAKEN: [&str; 12] = [
    "-get",
    "-set",
    "-pttl",
    "-pexpire",
    "-del",
    "-evalsha",
    "-zadd",
    "-time",
    "-publish",
    "-@all",
    "resetkeys",
    "off",
];

/// The user as the documentation has it, word for word: with no right more than it says.
pub(crate) fn rules(topology: Topology) -> &'static str {
    let (text, special) = match topology {
        Topology::Single | Topology::Redlock => (README, ""),
        Topology::Sentinel => (TOPOLOGIES, "+role"),
        Topology::Cluster => (TOPOLOGIES, "+cluster|nodes"),
    };
    let mut users = text.lines().filter_map(|line| line.strip_prefix("user "));
    users.find(|rules| rules.contains(special)).expect("the documentation has a user")
}

/// The URL with which this user comes.
pub(crate) fn logged_in(url: &str) -> String {
    url.replacen("://", &format!("://{USER}:password@"), 1)
}

pub(crate) async fn take(server: &Server, right: &str) {
    set(server, &[USER, right]).await;
}

pub(crate) async fn give_back(server: &Server, topology: Topology) {
    let mut words: Vec<&str> = rules(topology).split(' ').collect();
    words.insert(1, "reset");
    set(server, &words).await;
}

async fn set(server: &Server, words: &[&str]) {
    server.query::<()>(cmd("ACL").arg("SETUSER").arg(words)).await.expect("the server is there");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topology_has_its_user() {
        for topology in [Topology::Single, Topology::Sentinel, Topology::Cluster, Topology::Redlock] {
            assert!(rules(topology).starts_with("locks on >password "), "{topology:?}");
        }
        assert_eq!(logged_in("redlock://a,b"), "redlock://locks:password@a,b");
    }
}

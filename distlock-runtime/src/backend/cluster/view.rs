//! What the nodes of a cluster say of it, and what follows from that. Pure: no clock, no I/O.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use redis::Value;

use crate::backend::redis::Address;

/// How many slots a cluster has: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.
pub(super) const SLOTS: u16 = 16_384;

/// What one node says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) claims: Vec<Claim>,
    /// All nodes that it knows of, those without slots too.
    pub(super) nodes: Vec<Address>,
    /// Their ids.
    ids: BTreeSet<String>,
}

/// Which slots a node has, as far as another one knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) address: Address,
    /// Counted up with each failover and each slot that is moved: of two nodes with the same slot, the one with the higher
    /// epoch has it.
    pub(super) epoch: u64,
    /// From each first slot to each last one.
    pub(super) slots: Vec<(u16, u16)>,
}

impl View {
    /// Reads the answers of the node at `asked`. To `CLUSTER NODES` it is a line for each node, with its id, its address, its
    /// flags, the id of its primary, when it was last heard of (two numbers), its epoch, the state of its link, and its slots.
    /// `CLUSTER SLOTS` has the addresses under which nodes want to be known (`cluster-preferred-endpoint-type`).
    pub(super) fn read(text: &str, slots: &Value, asked: &Address) -> View {
        let (mut view, preferred) = (View::default(), endpoints(slots));
        for line in text.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [id, at, flags, _, _, _, epoch, _, slots @ ..] = fields.as_slice() else { continue };
            let flags: Vec<&str> = flags.split(',').collect();
            let address = preferred.get(*id).cloned().or_else(|| address(at));
            let (Some(mut address), Ok(epoch)) = (address, epoch.parse()) else { continue };
            if flags.iter().any(|flag| matches!(*flag, "noaddr" | "handshake")) {
                continue;
            }
            // A node that has not been told its own address leaves it out.
            if address.host.is_empty() {
                address.host.clone_from(&asked.host);
            }
            view.nodes.push(address.clone());
            view.ids.insert((*id).to_owned());
            // What is in brackets is a slot on its way to or from another node: the commands on it tell.
            let slots: Vec<_> =
                slots.iter().filter(|slot| !slot.starts_with('[')).filter_map(|slot| range(slot)).collect();
            if flags.contains(&"master") && !slots.is_empty() {
                view.claims.push(Claim { address, epoch, slots });
            }
        }
        view
    }
}

/// Reads the address in `ip:port@bus-port[,name]`.
fn address(at: &str) -> Option<Address> {
    Address::parse(at.split(['@', ',']).next()?)
}

/// The addresses in the answer to `CLUSTER SLOTS`, by the ids of the nodes. Each part of it has a first and a last slot, and then
/// nodes with address, port and id. An address may be missing, which means the one that was asked.
fn endpoints(slots: &Value) -> HashMap<String, Address> {
    let array = |value: &Value| if let Value::Array(values) = value { values.clone() } else { Vec::new() };
    let mut endpoints = HashMap::new();
    for node in array(slots).iter().flat_map(|part| array(part).into_iter().skip(2)) {
        let (host, port, id) = match array(&node).as_slice() {
            [host, Value::Int(port), id, ..] => (text(host).unwrap_or_default(), *port, text(id)),
            _ => continue,
        };
        // A name that is wanted and not known is a question mark.
        if let (Some(id), Ok(port), true) = (id, u16::try_from(port), host != "?") {
            endpoints.insert(id, Address { host, port });
        }
    }
    endpoints
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Leaves those views that are of the cluster that is known. A node may have left it and joined another, or another one's may
/// have got its address: they know hardly any of the nodes that we know. Where nothing is known yet, it is the cluster that most
/// speak of. Nothing if none of the views is of it.
pub(super) fn of_one_cluster(views: Vec<View>, known: &BTreeSet<String>) -> Vec<View> {
    let is_of = |view: &View, ids: &BTreeSet<String>| view.ids.intersection(ids).count() * 2 > ids.len();
    let ids = if known.is_empty() {
        let most = |view: &&View| views.iter().filter(|other| is_of(other, &view.ids)).count();
        // Of several with as many, the first.
        views.iter().rev().max_by_key(most).map(|view| view.ids.clone()).unwrap_or_default()
    } else {
        known.clone()
    };
    views.into_iter().filter(|view| is_of(view, &ids)).collect()
}

/// The ids of all nodes that views speak of.
pub(super) fn ids_of(views: &[View]) -> BTreeSet<String> {
    views.iter().flat_map(|view| view.ids.iter().cloned()).collect()
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < SLOTS).then_some((first, last))
}

/// Which node has each slot, as far as is known.
#[derive(Debug)]
pub(super) struct Map {
    owners: Vec<Option<Owner>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    address: Arc<Address>,
    epoch: u64,
}

impl Map {
    pub(super) fn new() -> Map {
        Map { owners: vec![None; usize::from(SLOTS)] }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        self.owners.get(usize::from(slot))?.as_ref().map(|owner| &*owner.address)
    }

    /// All nodes that have slots.
    pub(super) fn owners(&self) -> Vec<&Address> {
        let mut owners: Vec<&Address> = Vec::new();
        for owner in self.owners.iter().flatten() {
            // Slots lie together mostly, so the last one is the one to look at.
            if owners.last() != Some(&&*owner.address) && !owners.contains(&&*owner.address) {
                owners.push(&owner.address);
            }
        }
        owners
    }

    /// Notes what a node has said of one slot.
    pub(super) fn move_slot(&mut self, slot: u16, address: &Address) {
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            let epoch = owner.as_ref().map_or(0, |owner| owner.epoch);
            *owner = Some(Owner { address: Arc::new(address.clone()), epoch });
        }
    }

    /// Takes what nodes have said at about the same time. For each slot the latest epoch counts, whoever tells it: an old
    /// primary that has come back, or one that is cut off from the others, does not know of what came after it. So an
    /// earlier epoch than was told before counts only where more than half of the nodes speak: the cluster may have
    /// been set up anew.
    pub(super) fn take(&mut self, views: &[View]) {
        let mut latest: Vec<Option<Owner>> = vec![None; usize::from(SLOTS)];
        for claim in views.iter().flat_map(|view| &view.claims) {
            let owner = Owner { address: Arc::new(claim.address.clone()), epoch: claim.epoch };
            for (first, last) in &claim.slots {
                let slots = latest.get_mut(usize::from(*first)..=usize::from(*last)).unwrap_or_default();
                for slot in slots.iter_mut().filter(|slot| slot.as_ref().is_none_or(|known| known.epoch < owner.epoch))
                {
                    *slot = Some(owner.clone());
                }
            }
        }
        let nodes = views.iter().map(|view| view.nodes.len()).max().unwrap_or(0);
        let is_majority = views.len() * 2 > nodes;
        for (owner, latest) in self.owners.iter_mut().zip(latest) {
            let known = owner.as_ref().map_or(0, |owner| owner.epoch);
            if let Some(latest) = latest.filter(|latest| latest.epoch >= known || is_majority) {
                *owner = Some(latest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "\
07c3 127.0.0.1:7004@17004 slave e7d1 0 1426238317239 4 connected
67ed 127.0.0.1:7002@17002,host-b master - 0 1426238316232 2 connected 5461-10922
292f 127.0.0.1:7003@17003,,shard-id=ab master,fail - 0 1426238318243 3 disconnected 10923-16382 16383
6ec2 :0@0 master,noaddr - 0 0 0 disconnected
e7d1 :7001@17001 myself,master - 0 0 1 connected 0-5460 [5461-<-67ed] [77->-292f]
";

    fn at(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn an_answer_is_read() {
        let view = View::read(ANSWER, &Value::Nil, &at("10.0.0.9:7001"));
        let claims: Vec<_> =
            view.claims.iter().map(|claim| (claim.address.to_string(), claim.epoch, claim.slots.clone())).collect();
        let expected = [
            ("127.0.0.1:7002", 2, vec![(5461, 10922)]),
            ("127.0.0.1:7003", 3, vec![(10923, 16382), (16383, 16383)]),
            ("10.0.0.9:7001", 1, vec![(0, 5460)]),
        ];
        assert_eq!(claims, expected.map(|(address, epoch, slots)| (address.to_owned(), epoch, slots)));
        assert_eq!(view.nodes.len(), 4);
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, id: &str| Value::Array(vec![host, Value::Int(7009), bulk(id), Value::Array(Vec::new())]);
        let nodes = [node(bulk("host-b"), "67ed"), node(Value::Nil, "e7d1"), node(bulk("?"), "292f")];
        let slots = Value::Array(vec![Value::Array([Value::Int(0), Value::Int(9)].into_iter().chain(nodes).collect())]);
        let named = View::read(ANSWER, &slots, &at("10.0.0.9:7001"));
        let addresses: Vec<_> = named.claims.iter().map(|claim| claim.address.to_string()).collect();
        assert_eq!(addresses, ["host-b:7009", "127.0.0.1:7003", "10.0.0.9:7009"]);
    }

    #[test]
    fn views_of_another_cluster_are_left_out() {
        let view = |ids: &str| View { ids: ids.chars().map(String::from).collect(), ..View::default() };
        let left = |known: &str, views: &[&str]| {
            let kept = of_one_cluster(views.iter().map(|ids| view(ids)).collect(), &view(known).ids);
            kept.iter().map(|view| view.ids.iter().cloned().collect::<String>()).collect::<Vec<_>>()
        };
        assert_eq!(left("abc", &["abc", "xyz", "abd"]), ["abc", "abd"]);
        // One that has gone and has kept its id, and a cluster that was made anew.
        assert_eq!(left("abc", &["cxyz", "ab"]), ["ab"]);
        assert_eq!(left("abc", &["xyz", "xyz"]), [""; 0]);
        // Where nothing is known.
        assert_eq!(left("", &["xyz", "abc", "abc"]), ["abc", "abc"]);
        assert_eq!(left("", &["xyz", "abc"]), ["xyz"]);
        assert_eq!(ids_of(&[view("ab"), view("bc")]), view("abc").ids);
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let text = "a b c\n\nid 1.1.1.1:1@2 master - 0 0 x connected 0-5\nid 1.1.1.1:1@2 master - 0 0 7 connected 9-5 16384 3\n";
        let view = View::read(text, &Value::Nil, &at("h:1"));
        assert_eq!(view.claims.len(), 1);
        assert_eq!(view.claims[0].slots, [(3, 3)]);
    }

    /// `A4:0-9 B5:5` is what one node says; `+` and so many nodes that it knows of besides.
    fn view(text: &str) -> View {
        let mut view = View::default();
        for part in text.split(' ') {
            if let Some(more) = part.strip_prefix('+') {
                view.nodes.extend((0..more.parse().unwrap()).map(|n| at(&format!("other{n}:1"))));
                continue;
            }
            let (who, slots) = part.split_once(':').unwrap();
            let address = at(&format!("{}:1", &who[..1]));
            view.nodes.push(address.clone());
            view.claims.push(Claim { address, epoch: who[1..].parse().unwrap(), slots: vec![range(slots).unwrap()] });
        }
        view
    }

    fn owners(map: &Map, slots: &[u16]) -> String {
        slots.iter().map(|slot| map.owner(*slot).map_or("-", |owner| &owner.host)).collect()
    }

    #[test]
    fn of_two_nodes_with_a_slot_the_later_epoch_has_it() {
        let mut map = Map::new();
        map.take(&[view("A1:0-9 B2:10-19"), view("C3:0-9 B2:10-19")]);
        assert_eq!(owners(&map, &[0, 9, 10, 19, 20]), "CCBB-");
        assert_eq!(map.owners().len(), 2);
    }

    #[test]
    fn an_earlier_epoch_needs_a_majority() {
        let mut map = Map::new();
        map.take(&[view("A3:0-9 +4")]);
        map.take(&[view("B2:0-9 +4"), view("B2:0-9 +4")]);
        assert_eq!(owners(&map, &[0]), "A");
        map.take(&[view("B2:0-9 +4"), view("B2:0-9 +4"), view("B2:0-9 +4")]);
        assert_eq!(owners(&map, &[0]), "B");
    }

    #[test]
    fn a_slot_that_nobody_claims_stays_where_it_was() {
        let mut map = Map::new();
        map.take(&[view("A1:0-9")]);
        map.take(&[view("A1:0-8")]);
        assert_eq!(owners(&map, &[9]), "A");
    }

    #[test]
    fn a_slot_that_was_moved_is_where_it_was_said_to_be_until_a_later_epoch() {
        let mut map = Map::new();
        map.take(&[view("A1:0-9 B2:10-19 +8")]);
        map.move_slot(5, &at("B:1"));
        assert_eq!(owners(&map, &[4, 5, 6]), "ABA");
        map.take(&[view("A1:0-9 B2:10-19 C3:5-5 +8")]);
        assert_eq!(owners(&map, &[4, 5, 6]), "ACA");
    }
}

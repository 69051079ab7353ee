//! What the nodes of a cluster say of it, and what follows from that. Pure: no clock, no I/O.

use std::sync::Arc;

use crate::backend::redis::Address;

/// How many slots a cluster has: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.
pub(super) const SLOTS: u16 = 16_384;

/// What one node says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) claims: Vec<Claim>,
    /// All nodes that it knows of, those without slots too.
    pub(super) nodes: Vec<Address>,
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
    /// Reads the answer to `CLUSTER NODES` of the node at `asked`: a line for each node, with its id, its address, its flags,
    /// the id of its primary, when it was last heard of (two numbers), its epoch, the state of its link, and its slots.
    pub(super) fn read(text: &str, asked: &Address, by_name: bool) -> View {
        let mut view = View::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, at, flags, _, _, _, epoch, _, slots @ ..] = fields.as_slice() else { continue };
            let flags: Vec<&str> = flags.split(',').collect();
            let (Some(address), Ok(epoch)) = (address(at, asked, by_name), epoch.parse()) else { continue };
            if flags.iter().any(|flag| matches!(*flag, "noaddr" | "handshake")) {
                continue;
            }
            view.nodes.push(address.clone());
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

/// Reads `ip:port@bus-port[,name]`. A node that has not been told its own address leaves it out. By name goes who has to
/// check certificates, which rarely have addresses.
fn address(at: &str, asked: &Address, by_name: bool) -> Option<Address> {
    let mut parts = at.split(',');
    let mut address = Address::parse(parts.next()?.split('@').next()?)?;
    // Later versions write more behind the name, as `key=value`.
    let name = parts.next().filter(|name| by_name && !name.is_empty() && !name.contains('='));
    if let Some(name) = name {
        name.clone_into(&mut address.host);
    } else if address.host.is_empty() {
        address.host.clone_from(&asked.host);
    }
    Some(address)
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
        let view = View::read(ANSWER, &at("10.0.0.9:7001"), false);
        let claims: Vec<_> =
            view.claims.iter().map(|claim| (claim.address.to_string(), claim.epoch, claim.slots.clone())).collect();
        let expected = [
            ("127.0.0.1:7002", 2, vec![(5461, 10922)]),
            ("127.0.0.1:7003", 3, vec![(10923, 16382), (16383, 16383)]),
            ("10.0.0.9:7001", 1, vec![(0, 5460)]),
        ];
        assert_eq!(claims, expected.map(|(address, epoch, slots)| (address.to_owned(), epoch, slots)));
        assert_eq!(view.nodes.len(), 4);
        let named = View::read(ANSWER, &at("10.0.0.9:7001"), true);
        assert_eq!(named.claims[0].address.to_string(), "host-b:7002");
        assert_eq!(named.claims[1].address.to_string(), "127.0.0.1:7003");
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let text = "a b c\n\nid 1.1.1.1:1@2 master - 0 0 x connected 0-5\nid 1.1.1.1:1@2 master - 0 0 7 connected 9-5 16384 3\n";
        let view = View::read(text, &at("h:1"), false);
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

//! Which of the servers that sentinels name is the primary. Pure: no clock, no I/O.

use std::cmp::Reverse;
use std::fmt;

/// Where a server is, as sentinels write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// What a sentinel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The primary, and the epoch of the failover that made it one: the higher, the later.
    Names(Address, u64),
    /// It has never heard of the service.
    Unknown,
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) text: String,
    /// Whether it stays so until somebody mends it.
    pub(super) lasting: bool,
}

/// What became of asking a server for its role.
#[derive(Debug)]
enum Met<C> {
    NotYet,
    /// It says that it is a primary, over this connection.
    Primary(C),
    /// It can't be had, or is none.
    Not(Failure),
}

/// What the sentinels of one service say, and the servers that they name.
pub(super) struct Ballot<C> {
    said: Vec<Option<Said>>,
    servers: Vec<(Address, Met<C>)>,
}

/// The primary that was found before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Predecessor {
    pub(super) epoch: u64,
    /// Whether it was found before these sentinels were asked. If not, they may have spoken of earlier times.
    pub(super) is_older: bool,
}

/// What speaks for a server. Greater is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Support {
    epoch: u64,
    votes: usize,
    first: Reverse<usize>,
}

impl<C> Ballot<C> {
    pub(super) fn new(sentinels: usize) -> Ballot<C> {
        Ballot { said: (0..sentinels).map(|_| None).collect(), servers: Vec::new() }
    }

    /// Notes what a sentinel says. Returns the server that it names, if that is new.
    pub(super) fn hear(&mut self, sentinel: usize, said: Said) -> Option<Address> {
        let named = match &said {
            Said::Names(address, _) if self.servers.iter().all(|(known, _)| known != address) => Some(address.clone()),
            _ => None,
        };
        if let Some(slot) = self.said.get_mut(sentinel) {
            *slot = Some(said);
        }
        self.servers.extend(named.clone().map(|address| (address, Met::NotYet)));
        named
    }

    /// Notes what became of asking a server.
    pub(super) fn meet(&mut self, address: &Address, outcome: Result<C, Failure>) {
        if let Some((_, met)) = self.servers.iter_mut().find(|(known, _)| known == address) {
            *met = outcome.map_or_else(Met::Not, Met::Primary);
        }
    }

    pub(super) fn has_primary(&self) -> bool {
        self.servers.iter().any(|(_, met)| matches!(met, Met::Primary(_)))
    }

    /// Takes the primary, if it can be told by now, or if what is still missing is `waited_for` no longer.
    ///
    /// An old primary that has come back calls itself one for some seconds, and a sentinel that has not heard of the
    /// failover names it. So the latest epoch counts, whoever says it. A server of an earlier one, than another server has
    /// that can't be had, or than the server had that was found before, needs a majority of the sentinels: they may have
    /// been set up anew.
    pub(super) fn take(&mut self, before: Option<&Predecessor>, waited_for: bool) -> Option<(Address, u64, C)> {
        if !waited_for && self.said.contains(&None) {
            return None;
        }
        let mut order: Vec<_> = (0..self.servers.len()).map(|at| (self.support(at), at)).collect();
        order.sort_unstable_by_key(|(support, _)| Reverse(*support));
        let mut latest = 0;
        for (support, at) in order {
            match self.servers.get(at) {
                Some((_, Met::NotYet)) if !waited_for => return None,
                Some((_, Met::Primary(_))) if self.may_be(support, latest, before) => {
                    let (address, met) = self.servers.swap_remove(at);
                    let Met::Primary(connection) = met else { return None };
                    return Some((address, support.epoch, connection));
                }
                _ => latest = latest.max(support.epoch),
            }
        }
        None
    }

    fn may_be(&self, support: Support, latest: u64, before: Option<&Predecessor>) -> bool {
        let has_majority = support.votes * 2 > self.said.len();
        let succeeds = |before: &Predecessor| support.epoch >= before.epoch || has_majority && before.is_older;
        (support.epoch >= latest || has_majority) && before.is_none_or(succeeds)
    }

    fn support(&self, server: usize) -> Support {
        let named = |said: &Option<Said>| match (said, self.servers.get(server)) {
            (Some(Said::Names(address, epoch)), Some((server, _))) if address == server => Some(*epoch),
            _ => None,
        };
        let epochs = self.said.iter().enumerate().filter_map(|(sentinel, said)| Some((sentinel, named(said)?)));
        epochs.fold(Support { epoch: 0, votes: 0, first: Reverse(usize::MAX) }, |support, (sentinel, epoch)| Support {
            epoch: support.epoch.max(epoch),
            votes: support.votes + 1,
            first: support.first.max(Reverse(sentinel)),
        })
    }

    /// What each of the sentinels said, and what became of the servers that they name.
    pub(super) fn explain(&self, sentinels: &[String]) -> Failure {
        let said = self.said.iter().zip(sentinels).map(|(said, name)| match said {
            Some(Said::Names(address, _)) => format!("the sentinel {name} names {address}"),
            Some(Said::Unknown) => format!("the sentinel {name} does not know the service"),
            Some(Said::Failed(failure)) => failure.text.clone(),
            None => format!("the sentinel {name} did not answer in time"),
        });
        let met = self.servers.iter().map(|(address, met)| match met {
            Met::NotYet => format!("{address} did not answer in time"),
            Met::Primary(_) => format!("{address} is out of date: others were named with a later epoch"),
            Met::Not(failure) => failure.text.clone(),
        });
        Failure { text: said.chain(met).collect::<Vec<_>>().join("; "), lasting: self.will_last() }
    }

    /// Whether it is in vain to try again: something has to be mended, and nothing else is in the way.
    fn will_last(&self) -> bool {
        let is_lasting = |failure: &Failure| failure.lasting;
        let servers = self.servers.iter().all(|(_, met)| matches!(met, Met::Not(failure) if failure.lasting));
        let refused = self.said.iter().flatten().any(|said| matches!(said, Said::Failed(f) if is_lasting(f)));
        let unknown = self.said.iter().all(|said| matches!(said, Some(Said::Unknown)));
        servers && (!self.servers.is_empty() || refused || unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three sentinels, unless more speak. `A4` names server A with epoch 4; `?` does not know, `x` is down, `.` has
    /// not answered. Of the servers, those in `primaries` say that they are, and those in `silent` nothing yet.
    fn taken(said: &str, primaries: &str, silent: &str, before: Option<(u64, bool)>, waited_for: bool) -> String {
        let before = before.map(|(epoch, is_older)| Predecessor { epoch, is_older });
        ballot(said, primaries, silent)
            .take(before.as_ref(), waited_for)
            .map_or("-".to_owned(), |(address, ..)| address.host)
    }

    fn ballot(said: &str, primaries: &str, silent: &str) -> Ballot<()> {
        let said: Vec<_> = said.split(' ').collect();
        let mut ballot = Ballot::new(said.len());
        for (sentinel, said) in said.iter().enumerate() {
            let said = match *said {
                "." => continue,
                "?" => Said::Unknown,
                "x" => Said::Failed(Failure { text: "it is down".to_owned(), lasting: false }),
                "!" => Said::Failed(Failure { text: "no right".to_owned(), lasting: true }),
                named => Said::Names(address(&named[..1]), named[1..].parse().unwrap()),
            };
            let Some(new) = ballot.hear(sentinel, said) else { continue };
            if primaries.contains(&new.host) {
                ballot.meet(&new, Ok(()));
            } else if !silent.contains(&new.host) {
                ballot.meet(&new, Err(Failure { text: "it is a replica".to_owned(), lasting: false }));
            }
        }
        ballot
    }

    fn address(host: &str) -> Address {
        Address { host: host.to_owned(), port: 6379 }
    }

    #[test]
    fn who_is_named_and_says_so_itself_is_taken() {
        assert_eq!(taken("A4 A4 A4", "A", "", None, false), "A");
        assert_eq!(taken("A4 x ?", "A", "", None, false), "A");
        assert_eq!(taken("A4 A4 A4", "", "", None, false), "-");
        assert_eq!(taken("A4 A4 A4", "", "A", None, true), "-");
    }

    #[test]
    fn the_others_are_waited_for_but_not_for_ever() {
        assert_eq!(taken("A4 A4 .", "A", "", None, false), "-");
        assert_eq!(taken("A4 A4 .", "A", "", None, true), "A");
        assert_eq!(taken("A4 . .", "A", "", None, true), "A");
        assert_eq!(taken("A4 A4 B5", "A", "B", None, false), "-");
    }

    #[test]
    fn the_latest_epoch_counts_and_then_the_number_of_votes_and_then_the_order() {
        assert_eq!(taken("A4 A4 B5", "AB", "", None, false), "B");
        assert_eq!(taken("A4 B4 B4", "AB", "", None, false), "B");
        assert_eq!(taken("B4 A4 x", "AB", "", None, false), "B");
    }

    #[test]
    fn an_earlier_epoch_needs_a_majority() {
        assert_eq!(taken("A4 B5 x", "A", "", None, false), "-");
        assert_eq!(taken("A4 A4 B5", "A", "", None, false), "A");
        assert_eq!(taken("A4 x x", "A", "", Some((5, true)), false), "-");
        assert_eq!(taken("A4 A4 x", "A", "", Some((5, true)), false), "A");
        assert_eq!(taken("A4 A4 A4", "A", "", Some((5, false)), false), "-");
        assert_eq!(taken("A5 x x", "A", "", Some((5, false)), false), "A");
    }

    #[test]
    fn a_failure_lasts_where_something_must_be_mended_and_nothing_else_is_in_the_way() {
        let lasts = |said, primaries| ballot(said, primaries, "").explain(&[]).lasting;
        assert!(lasts("? ? ?", "") && lasts("! x x", "") && lasts("! ? !", ""));
        assert!(!lasts("? ? x", "") && !lasts("x x x", "") && !lasts("A4 ! !", "") && !lasts("? ? .", ""));
    }

    #[test]
    fn a_failure_tells_what_each_has_said() {
        let names = ["h1", "h2", "h3", "h4"].map(str::to_owned);
        let text = ballot("A4 x ? .", "", "").explain(&names).text;
        for part in ["h1 names A:6379", "it is down", "h3 does not know", "h4 did not answer", "it is a replica"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

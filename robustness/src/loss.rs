//! What was made to fail, as the journal has it: when a server forgot, and who was being broken when.

use std::time::Duration;

use crate::client::TTL;
use crate::client::calls::KEYS;
use crate::history::{Event, What, nanos};

/// Why a server forgets: its clock was set forward, so that leases ended early, and no data is gone.
pub(crate) const STEP: &str = "step of the clock";
/// It is one of several independent servers whose clock was set forward: locks that it had granted have ended there alone.
pub(crate) const STEP_OF_ONE: &str = "step of one of several clocks";
/// Another server takes its place, and each that could have confirmed all that was granted.
pub(crate) const CONFIRMED_FAILOVER: &str = "failover, after all replicas had confirmed what was granted";
/// It came back with what it had saved at the beginning of this time. Until when a lock stands was saved with it.
pub(crate) const SAVED: &str = "back with what was saved";

/// How long nobody goes on after a server has forgotten and answers: until the next renewal, which is due after a third of a ttl and has
/// its answer within the command timeout.
const NOTICED: Duration = Duration::from_millis(267 + 400);
/// What a crowded machine may take from the end of a lease to the stamp of a step that was begun before.
const SLACK: Duration = Duration::from_millis(50);
/// How long a client may still suffer from what was mended: what was on its way arrives late, requests that were lost are given up, the
/// next ones have to be answered.
const AFTERMATH: Duration = Duration::from_secs(1);
/// The same of a server, which then does at once what it was asked for meanwhile: clients have to connect to it anew.
const AFTERMATH_OF_SERVER: Duration = Duration::from_millis(200);

/// A server has forgotten what it had granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) why: String,
    /// The moment of forgetting lies between these two. Nothing that was granted after `to` is concerned.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When the server, or its successor, answered again.
    pub(crate) back: u64,
    /// The locks on that server, or nothing for all there are.
    pub(crate) keys: Vec<String>,
}

impl Loss {
    /// As it stands in the journal.
    pub(crate) fn line(&self) -> String {
        let keys = if self.keys.is_empty() { "*".to_owned() } else { self.keys.join(",") };
        format!("lost {} {} {} {keys} {}", self.from, self.to, self.back, self.why)
    }

    pub(crate) fn read(text: &str) -> Option<Loss> {
        let mut words = text.splitn(5, ' ');
        let mut number = || words.next()?.parse().ok();
        let (from, to, back) = (number()?, number()?, number()?);
        let keys = words.next()?.split(',').filter(|key| *key != "*").map(str::to_owned).collect();
        Some(Loss { why: words.next()?.to_owned(), from, to, back, keys })
    }

    pub(crate) fn is_step(&self) -> bool {
        self.why == STEP || self.is_of_one()
    }

    /// Whether one of several servers can give its vote twice.
    pub(crate) fn is_of_one(&self) -> bool {
        self.why == STEP_OF_ONE
    }

    /// Whether what was granted is kept, and only renewals may be forgotten: no replica has to confirm these.
    pub(crate) fn keeps_grants(&self) -> bool {
        self.why == CONFIRMED_FAILOVER
    }

    /// Whether it is known until when each lock stood that is kept.
    pub(crate) fn is_saved(&self) -> bool {
        self.why == SAVED
    }

    pub(crate) fn concerns(&self, key: &str) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|other| other == key)
    }

    /// Until when a client goes on at most by a lock that was forgotten: for its lease, and not beyond the next renewal, unless
    /// there is none, or something else keeps it from that.
    pub(crate) fn ends(&self, client: &str, is_renewed: bool, broken: &[Broken]) -> u64 {
        let lease = self.to.saturating_add(nanos(TTL + SLACK));
        let noticed = self.back.max(self.to).saturating_add(nanos(NOTICED + SLACK));
        let hinders = |other: &&Broken| other.hits(client) && other.from < noticed && self.from <= other.mended();
        // The fault itself is over when the server is back.
        let is_other = |other: &&Broken| other.who != SERVER || !(other.from..=other.to).contains(&self.from);
        if !is_renewed || broken.iter().filter(hinders).any(|other| is_other(&other)) {
            lease
        } else {
            lease.min(noticed)
        }
    }
}

/// Who is broken that is no single client.
pub(crate) const SERVER: &str = "server";
pub(crate) const CLIENTS: &str = "clients";

/// A client by its number, or all of them, or a server, and from when to when it or its way was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) who: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Broken {
    pub(crate) fn line(&self) -> String {
        format!("broken {} {} {}", self.who, self.from, self.to)
    }

    pub(crate) fn read(text: &str) -> Option<Broken> {
        let mut words = text.split(' ');
        let who = words.next()?.to_owned();
        Some(Broken { who, from: words.next()?.parse().ok()?, to: words.next()?.parse().ok()? })
    }

    pub(crate) fn hits(&self, client: &str) -> bool {
        self.who == SERVER || self.who == CLIENTS || self.who == client
    }

    /// When nothing of it is felt any more.
    pub(crate) fn mended(&self) -> u64 {
        self.to.saturating_add(nanos(if self.who == SERVER { AFTERMATH_OF_SERVER } else { AFTERMATH }))
    }
}

/// The wall clock of a server was set forward, and later back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) by: Duration,
}

impl Ahead {
    pub(crate) fn line(&self) -> String {
        format!("ahead {} {} {}", self.from, self.to, self.by.as_nanos())
    }

    pub(crate) fn read(text: &str) -> Option<Ahead> {
        let mut numbers = text.split(' ').map(|word| word.parse().ok());
        let mut number = || numbers.next()?;
        Some(Ahead { from: number()?, to: number()?, by: Duration::from_nanos(number()?) })
    }

    /// Until when tokens may be ahead that were counted on from those of that clock.
    pub(crate) fn caught_up(&self) -> u64 {
        self.to.saturating_add(nanos(self.by + AFTERMATH))
    }
}

/// All that was made to fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failed {
    pub(crate) losses: Vec<Loss>,
    pub(crate) broken: Vec<Broken>,
    pub(crate) ahead: Vec<Ahead>,
}

impl Failed {
    pub(crate) fn of(events: &[Event]) -> Failed {
        let mut failed = Failed::default();
        for event in events {
            match &event.what {
                What::Lost(loss) => failed.losses.push(loss.clone()),
                What::Broken(broken) => failed.broken.push(broken.clone()),
                What::Ahead(ahead) => failed.ahead.push(ahead.clone()),
                _ => {}
            }
        }
        failed
    }

    /// Whether a client, or a server, was hindered at some time between these two.
    pub(crate) fn hindered(&self, client: &str, from: u64, to: u64) -> bool {
        self.broken.iter().any(|broken| broken.hits(client) && broken.from <= to && from <= broken.mended())
    }

    /// In what share of the time, over all keys, something may have been forgotten, or a lock go on that was.
    pub(crate) fn share_of_time(&self, events: &[Event]) -> f64 {
        let (Some(begin), Some(end)) = (events.first(), events.iter().rfind(|event| is_mark(event))) else {
            return 0.0;
        };
        let (mut exempt, mut whole) = (Duration::ZERO, Duration::ZERO);
        for key in ["x", "rw", "p"].iter().flat_map(|kind| (0..KEYS).map(move |key| format!("{kind}:{key}"))) {
            let mut last = begin.at;
            let mut losses: Vec<_> = self.losses.iter().filter(|loss| loss.concerns(&key)).collect();
            losses.sort_by_key(|loss| loss.from);
            for loss in losses {
                let to = loss.ends("", true, &self.broken).min(end.at);
                exempt += Duration::from_nanos(to.saturating_sub(loss.from.max(last)));
                last = last.max(to);
            }
            whole += Duration::from_nanos(end.at.saturating_sub(begin.at));
        }
        exempt.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The losses that a lock of this key, asked for at `since`, may have been forgotten by when others find it free at `next`.
    pub(crate) fn forgetting<'a>(&'a self, key: &'a str, since: u64, next: u64) -> impl Iterator<Item = &'a Loss> {
        let straddled = move |loss: &&Loss| loss.concerns(key) && since < loss.to && loss.from <= next;
        self.losses.iter().filter(straddled)
    }
}

/// The last thing that is told of faults.
fn is_mark(event: &Event) -> bool {
    matches!(event.what, What::Fault(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    const MILLI: u64 = 1_000_000;

    fn loss() -> Loss {
        Loss { why: "flush".to_owned(), from: 200 * MILLI, to: 210 * MILLI, back: 210 * MILLI, keys: Vec::new() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let loss = Loss { keys: vec!["x:1".to_owned(), "p:2".to_owned()], ..loss() };
        let broken = Broken { who: "7".to_owned(), from: 1, to: 9 };
        let ahead = Ahead { from: 3, to: 4, by: Duration::from_secs(5) };
        let failed = Failed::of(&read(&format!("1 - {}\n2 - {}\n3 - {}\n", loss.line(), broken.line(), ahead.line())));
        assert_eq!((failed.losses, failed.broken, failed.ahead), (vec![loss], vec![broken], vec![ahead]));
    }

    #[test]
    fn the_time_that_is_exempt_is_counted_once() {
        let failed =
            |losses| Failed { losses, ..Failed::default() }.share_of_time(&read("0 - fault a\n2000000000 - fault b\n"));
        assert!((failed(vec![loss()]) - 0.3635).abs() < 0.001, "{}", failed(vec![loss()]));
        assert!((failed(vec![loss(), loss()]) - 0.3635).abs() < 0.001);
        let of_one = Loss { keys: vec!["x:1".to_owned()], ..loss() };
        assert!((failed(vec![of_one]) - 0.3635 / 15.0).abs() < 0.001);
        assert!(failed(Vec::new()).abs() < f64::EPSILON);
    }

    #[test]
    fn it_concerns_what_was_granted_before_on_that_server() {
        let failed = |keys: &[&str]| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            Failed { losses: vec![Loss { keys, ..loss() }], ..Failed::default() }
        };
        let is_forgotten =
            |failed: Failed, since, next| failed.forgetting("k", since * MILLI, next * MILLI).count() > 0;
        assert!(is_forgotten(failed(&[]), 190, 200) && is_forgotten(failed(&["j", "k"]), 190, 200));
        assert!(!is_forgotten(failed(&["j"]), 190, 200));
        assert!(!is_forgotten(failed(&[]), 210, 300) && !is_forgotten(failed(&[]), 100, 199));
    }

    #[test]
    fn it_is_noticed_by_the_next_renewal_unless_something_else_is_in_the_way() {
        let ends = |broken: &[Broken]| loss().ends("7", true, broken) / MILLI;
        let broken =
            |who: &str, from: u64, to: u64| [Broken { who: who.to_owned(), from: from * MILLI, to: to * MILLI }];
        assert_eq!(ends(&[]), 210 + 267 + 400 + 50);
        assert_eq!(ends(&broken("8", 300, 400)), 210 + 267 + 400 + 50);
        assert_eq!(ends(&broken("7", 300, 400)), 210 + 800 + 50);
        // The one before, and the one that made the server forget.
        assert_eq!(ends(&broken("server", 10, 20)), 210 + 800 + 50);
        assert_eq!(ends(&broken("server", 200, 220)), 210 + 267 + 400 + 50);
        assert_eq!(loss().ends("7", false, &[]) / MILLI, 210 + 800 + 50);
    }
}

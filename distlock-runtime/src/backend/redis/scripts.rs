use std::sync::OnceLock;

use redis::{Cmd, RedisWrite, Script, ToRedisArgs, ToSingleRedisArg};

use super::live::millis;
use crate::backend::{Entry, FORGET, Kind};

pub(super) static ACQUIRE: Lua = Lua::new(
    include_str!("../../../scripts/acquire.lua"),
    |entry| if entry.marked { &[FENCE, MARK] } else { &[FENCE] },
    |command, entry, _| {
        set(command, entry).arg(stay(entry));
    },
);
pub(super) static SHARE: Lua = Lua::new(
    include_str!("../../../scripts/share.lua"),
    |_| &[LINE, MARK],
    |command, entry, _| {
        command.arg(millis(entry.ttl)).arg(KindArgument(entry.kind)).arg(stay(entry)).arg(entry.beside);
    },
);
pub(super) static ACQUIRE_ALL: Source = Source::new(include_str!("../../../scripts/acquire_all.lua"));
pub(super) static RENEW_ALL: Source = Source::new(include_str!("../../../scripts/renew_all.lua"));
pub(super) static MINT: Source = Source::new(include_str!("../../../scripts/mint.lua"));
pub(super) static WAIT: Lua = Lua::new(
    include_str!("../../../scripts/wait.lua"),
    |_| &[FENCE, LINE, MARK],
    |command, entry, sharded| {
        set(command, entry).arg(entry.waiter.unwrap_or_default()).arg(millis(FORGET)).arg(KindArgument(entry.kind));
        command.arg(sharded.then_some(SHARDED));
    },
);
/// The token to raise to is what the entry asks to be above.
pub(super) static RAISE: Lua = Lua::new(
    include_str!("../../../scripts/raise.lua"),
    |_| &[FENCE],
    |command, entry, _| {
        command.arg(entry.fencing.map_or(0, |fencing| fencing.above));
    },
);
static RENEW: Lua = Lua::new(
    include_str!("../../../scripts/renew.lua"),
    |_| &[],
    |command, entry, _| {
        command.arg(millis(entry.ttl));
    },
);
static RENEW_SHARE: Lua = Lua::new(
    include_str!("../../../scripts/renew_share.lua"),
    |_| &[],
    |command, entry, _| {
        command.arg(millis(entry.ttl)).arg(KindArgument(entry.kind));
    },
);
pub(super) static FREE: Lua = Lua::new(
    include_str!("../../../scripts/free.lua"),
    |_| &[],
    |command, entry, _| {
        command.arg(entry.kind.is_shared().then_some(KindArgument(entry.kind)));
    },
);
/// For one who has not waited.
pub(super) static FREE_UNWAITED: Lua =
    Lua::new(include_str!("../../../scripts/free_unwaited.lua"), |_| &[], |_, _, _| {});
pub(super) static RELEASE: Lua = Lua::new(
    include_str!("../../../scripts/release.lua"),
    |_| &[LINE, MARK],
    |command, entry, sharded| {
        if !sharded && !entry.marked && !entry.kind.is_shared() {
            command.arg(entry.waiter);
            return;
        }
        command.arg(entry.waiter.unwrap_or_default()).arg(KindArgument(entry.kind)).arg(u8::from(entry.marked));
        command.arg(sharded.then_some(SHARDED));
    },
);

/// See `planted`.
pub(super) static UNCHECKED_RELEASE: Lua =
    Lua::new("redis.call('DEL', KEYS[1]); return 1", |_| &[LINE, MARK], |_, _, _| {});

/// What extends a lock, or a share of it.
pub(super) fn renewal(entry: &Entry<'_>) -> &'static Lua {
    if entry.kind.is_shared() { &RENEW_SHARE } else { &RENEW }
}

/// What the scripts have in common. A line `-- include <name>` stands for it.
const PARTS: [(&str, &str); 3] = [
    ("-- include fence\n", include_str!("../../../scripts/parts/fence.lua")),
    ("-- include shares\n", include_str!("../../../scripts/parts/shares.lua")),
    ("-- include line\n", include_str!("../../../scripts/parts/line.lua")),
];

const FENCE: &str = ":fence";
const LINE: &str = ":line";
const MARK: &str = ":next";
const SHARDED: &str = "sharded";

/// The text of a script.
pub(super) struct Source {
    text: &'static str,
    /// Put together and hashed once. `redis::Script` could also load the script by itself, but in three round trips, and
    /// with a right (`SCRIPT LOAD`) that nothing else of ours needs.
    whole: OnceLock<(String, Script)>,
}

impl Source {
    const fn new(text: &'static str) -> Source {
        Source { text, whole: OnceLock::new() }
    }

    fn whole(&self) -> &(String, Script) {
        self.whole.get_or_init(|| {
            let whole = PARTS.iter().fold(self.text.to_owned(), |text, (mark, part)| text.replace(mark, part));
            let hashed = Script::new(&whole);
            (whole, hashed)
        })
    }

    pub(super) fn hash(&self) -> &str {
        self.whole().1.get_hash()
    }

    pub(super) fn text(&self) -> &str {
        &self.whole().0
    }

    /// The command whose error ends the script in this line, counted from 1.
    pub(super) fn command_of_line(&self, line: usize) -> Option<&str> {
        let line = self.whole().0.lines().nth(line.checked_sub(1)?)?;
        line.split_once("redis.call('")?.1.split_once('\'').map(|(command, _)| command)
    }
}

/// What a lock is set by: how long it stands, and which fencing tokens it brings.
fn set<'a>(command: &'a mut Cmd, entry: &Entry<'_>) -> &'a mut Cmd {
    let (count, above) = entry.fencing.map_or((0, 0), |fencing| (fencing.count, fencing.above));
    command.arg(millis(entry.ttl)).arg(count).arg(above)
}

/// For how long to hold others back, if not this but a later attempt may succeed.
fn stay(entry: &Entry<'_>) -> u64 {
    entry.returning.map_or(0, |returning| millis(returning.min(FORGET)))
}

/// A kind as the scripts know it.
struct KindArgument(Kind);

impl ToRedisArgs for KindArgument {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self.0 {
            Kind::Exclusive => out.write_arg(b""),
            Kind::Read => out.write_arg(b"r"),
            Kind::Permits(permits) => out.write_arg_fmt(format_args!("p{permits}")),
        }
    }
}

impl ToSingleRedisArg for KindArgument {}

/// A script on one lock. All take the lock's name, then those of helper keys, then our value.
pub(super) struct Lua {
    pub(super) source: Source,
    /// What the names of the helper keys end with.
    helpers: fn(&Entry<'_>) -> &'static [&'static str],
    /// Adds what follows the value, in a cluster or not.
    arguments: fn(&mut Cmd, &Entry<'_>, bool),
}

impl Lua {
    const fn new(
        text: &'static str,
        helpers: fn(&Entry<'_>) -> &'static [&'static str],
        arguments: fn(&mut Cmd, &Entry<'_>, bool),
    ) -> Lua {
        Lua { source: Source::new(text), helpers, arguments }
    }

    /// The call by hash, which fails with `NOSCRIPT` where the server does not know the script.
    pub(super) fn by_hash(&self, name: &str, entry: &Entry<'_>, sharded: bool) -> Cmd {
        self.command("EVALSHA", self.source.hash(), name, entry, sharded)
    }

    /// The call by source, which also makes the script known.
    pub(super) fn by_source(&self, name: &str, entry: &Entry<'_>, sharded: bool) -> Cmd {
        self.command("EVAL", &self.source.whole().0, name, entry, sharded)
    }

    pub(super) fn command(&self, kind: &str, script: &str, name: &str, entry: &Entry<'_>, sharded: bool) -> Cmd {
        let helpers = (self.helpers)(entry);
        let keys = 1 + helpers.len();
        let size = kind.len() + script.len() + keys * (name.len() + 6) + entry.value.len() + 100;
        let mut command = Cmd::with_capacity(keys + 9, size);
        command.arg(kind).arg(script).arg(keys).arg(name);
        add_helpers(&mut command, name, helpers);
        command.arg(entry.value);
        (self.arguments)(&mut command, entry, sharded);
        command
    }
}

/// Adds the names of helper keys, which begin with the lock's.
fn add_helpers(command: &mut Cmd, name: &str, helpers: &[&str]) {
    let Some(longest) = helpers.iter().map(|helper| helper.len()).max() else { return };
    let mut text = String::with_capacity(name.len() + longest);
    text.push_str(name);
    for helper in helpers {
        text.truncate(name.len());
        text.push_str(helper);
        command.arg(&text);
    }
}

/// A call on several locks: their names, those of their fencing tokens, their terms and values.
pub(super) fn command_for_all(kind: &str, script: &str, names: &[String], entries: &[Entry<'_>]) -> Cmd {
    let mut command = redis::cmd(kind);
    // Where a slot of a cluster is on its way, each key more may be on another node than the rest.
    let helpers = [
        (FENCE, entries.iter().any(|entry| entry.fencing.is_some())),
        (MARK, entries.iter().any(|entry| entry.marked || entry.kind.is_shared())),
        (LINE, entries.iter().any(|entry| entry.kind.is_shared())),
    ];
    let helpers = || helpers.iter().filter_map(|(helper, needed)| needed.then_some(*helper));
    command.arg(script).arg(names.len() * (1 + helpers().count())).arg(names);
    for helper in helpers() {
        for name in names {
            add_helpers(&mut command, name, &[helper]);
        }
    }
    if let Some(first) = entries.first() {
        set(&mut command, first).arg(KindArgument(first.kind)).arg(stay(first));
    }
    for entry in entries {
        command.arg(entry.value);
    }
    command
}

/// A call that renews several locks, each for itself.
pub(super) fn command_to_renew(kind: &str, script: &str, names: &[String], entries: &[&Entry<'_>]) -> Cmd {
    let texts = names.iter().map(String::len).chain(entries.iter().map(|entry| entry.value.len() + 8)).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + 3 * names.len(), kind.len() + script.len() + texts + 8);
    command.arg(kind).arg(script).arg(names.len()).arg(names);
    for entry in entries {
        command.arg(entry.value).arg(millis(entry.ttl));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::{ACQUIRE, ACQUIRE_ALL, FREE, MINT, RELEASE, RENEW_SHARE, SHARE, WAIT};
    use crate::backend::{CLAIM, PATIENCE};

    #[test]
    fn scripts_are_whole() {
        let scripts = [&ACQUIRE, &SHARE, &WAIT, &RELEASE, &RENEW_SHARE, &FREE].map(|script| &script.source);
        for source in scripts.into_iter().chain([&ACQUIRE_ALL, &MINT]) {
            assert!(!source.whole().0.contains("-- include"), "{}", source.whole().0);
        }
    }

    #[test]
    fn a_line_names_its_command() {
        let line = RELEASE.source.whole().0.lines().position(|line| line.contains("'DEL'")).unwrap();
        assert_eq!(RELEASE.source.command_of_line(line + 1), Some("DEL"));
        assert_eq!(RELEASE.source.command_of_line(1), None);
        assert_eq!(RELEASE.source.command_of_line(0), None);
    }

    #[test]
    fn scripts_and_waiters_have_the_same_patience() {
        let stated = format!("local PATIENCE, CLAIM = {}, {}\n", PATIENCE.as_millis(), CLAIM.as_millis());
        assert!(WAIT.source.whole().0.contains(&stated), "{stated}");
    }
}

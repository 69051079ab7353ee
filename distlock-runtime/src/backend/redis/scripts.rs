use std::sync::OnceLock;

use redis::{Cmd, Script};

use super::live::{Site, millis};
use crate::backend::{CLAIM, Entry, FORGET, PATIENCE};

pub(super) static ACQUIRE: Lua = Lua::new(
    concat!(include_str!("../../../scripts/parts/fence.lua"), include_str!("../../../scripts/acquire.lua")),
    &[FENCE],
    |command, entry, _| {
        set(command, entry);
    },
);
pub(super) static ACQUIRE_ALL: LuaForAll = LuaForAll {
    source: concat!(include_str!("../../../scripts/parts/fence.lua"), include_str!("../../../scripts/acquire_all.lua")),
    hashed: OnceLock::new(),
};
pub(super) static WAIT: Lua = Lua::new(
    concat!(
        include_str!("../../../scripts/parts/fence.lua"),
        include_str!("../../../scripts/parts/line.lua"),
        include_str!("../../../scripts/wait.lua")
    ),
    &[FENCE, LINE, SEEN],
    |command, entry, site| {
        set(command, entry).arg(entry.waiter.unwrap_or_default());
        command.arg(millis(PATIENCE)).arg(millis(CLAIM)).arg(millis(FORGET)).arg(&site.channels);
    },
);
pub(super) static RENEW: Lua = Lua::new(include_str!("../../../scripts/renew.lua"), &[], |command, entry, _| {
    command.arg(millis(entry.ttl));
});
pub(super) static RELEASE: Lua = Lua::new(
    concat!(include_str!("../../../scripts/parts/line.lua"), include_str!("../../../scripts/release.lua")),
    &[LINE, SEEN],
    |command, entry, site| {
        command.arg(entry.waiter.unwrap_or_default()).arg(millis(PATIENCE)).arg(millis(CLAIM)).arg(&site.channels);
    },
);

const FENCE: &str = ":fence";
const LINE: &str = ":line";
const SEEN: &str = ":seen";

/// What a lock is set by: how long it stands, and which fencing tokens it brings.
fn set<'a>(command: &'a mut Cmd, entry: &Entry<'_>) -> &'a mut Cmd {
    let (count, above) = entry.fencing.map_or((0, 0), |fencing| (fencing.count, fencing.above));
    command.arg(millis(entry.ttl)).arg(count).arg(above)
}

/// A Lua script of ours. All take the lock's name, then those of helper keys, then our value.
pub(super) struct Lua {
    source: &'static str,
    /// Hashed once. `redis::Script` could also load the script by itself, but in three round trips, and with a right
    /// (`SCRIPT LOAD`) that nothing else of ours needs.
    hashed: OnceLock<Script>,
    /// What the names of the helper keys end with.
    helpers: &'static [&'static str],
    /// Adds what follows the value.
    arguments: fn(&mut Cmd, &Entry<'_>, &Site),
}

impl Lua {
    const fn new(
        source: &'static str,
        helpers: &'static [&'static str],
        arguments: fn(&mut Cmd, &Entry<'_>, &Site),
    ) -> Lua {
        Lua { source, hashed: OnceLock::new(), helpers, arguments }
    }

    /// The call by hash, which fails with `NOSCRIPT` where the server does not know the script.
    pub(super) fn by_hash(&self, site: &Site, name: &str, entry: &Entry<'_>) -> Cmd {
        let hashed = self.hashed.get_or_init(|| Script::new(self.source));
        self.command("EVALSHA", hashed.get_hash(), site, name, entry)
    }

    /// The call by source, which also makes the script known.
    pub(super) fn by_source(&self, site: &Site, name: &str, entry: &Entry<'_>) -> Cmd {
        self.command("EVAL", self.source, site, name, entry)
    }

    fn command(&self, kind: &str, script: &str, site: &Site, name: &str, entry: &Entry<'_>) -> Cmd {
        let keys = 1 + self.helpers.len();
        let size = kind.len() + script.len() + keys * (name.len() + 6) + entry.value.len() + site.channels.len() + 80;
        let mut command = Cmd::with_capacity(keys + 12, size);
        command.arg(kind).arg(script).arg(keys).arg(name);
        let mut full = String::with_capacity(name.len() + 6);
        full.push_str(name);
        for helper in self.helpers {
            full.truncate(name.len());
            full.push_str(helper);
            command.arg(&full);
        }
        command.arg(entry.value);
        (self.arguments)(&mut command, entry, site);
        command
    }
}

/// The script that takes several locks at once.
pub(super) struct LuaForAll {
    source: &'static str,
    hashed: OnceLock<Script>,
}

impl LuaForAll {
    pub(super) fn by_hash(&self, names: &[String], entries: &[Entry<'_>]) -> Cmd {
        let hashed = self.hashed.get_or_init(|| Script::new(self.source));
        command_for_all("EVALSHA", hashed.get_hash(), names, entries)
    }

    pub(super) fn by_source(&self, names: &[String], entries: &[Entry<'_>]) -> Cmd {
        command_for_all("EVAL", self.source, names, entries)
    }
}

fn command_for_all(kind: &str, script: &str, names: &[String], entries: &[Entry<'_>]) -> Cmd {
    let mut command = redis::cmd(kind);
    command.arg(script).arg(2 * names.len()).arg(names);
    for name in names {
        command.arg(format!("{name}{FENCE}"));
    }
    if let Some(first) = entries.first() {
        set(&mut command, first);
    }
    for entry in entries {
        command.arg(entry.value);
    }
    command
}

use std::sync::OnceLock;

use redis::{Cmd, Script};

use super::live::millis;
use crate::backend::Entry;

pub(super) static ACQUIRE: Lua = Lua::new(include_str!("../../../scripts/acquire.lua"), true);
pub(super) static RENEW: Lua = Lua::new(include_str!("../../../scripts/renew.lua"), true);
pub(super) static RELEASE: Lua = Lua::new(include_str!("../../../scripts/release.lua"), false);

/// A Lua script of ours. All take the lock's name and our value.
pub(super) struct Lua {
    source: &'static str,
    /// Hashed once. `redis::Script` could also load the script by itself, but in three round trips, and with a right
    /// (`SCRIPT LOAD`) that nothing else of ours needs.
    hashed: OnceLock<Script>,
    takes_ttl: bool,
}

impl Lua {
    const fn new(source: &'static str, takes_ttl: bool) -> Lua {
        Lua { source, hashed: OnceLock::new(), takes_ttl }
    }

    /// The call by hash, which fails with `NOSCRIPT` where the server does not know the script.
    pub(super) fn by_hash(&self, name: &str, entry: &Entry<'_>) -> Cmd {
        let hashed = self.hashed.get_or_init(|| Script::new(self.source));
        self.command("EVALSHA", hashed.get_hash(), name, entry)
    }

    /// The call by source, which also makes the script known.
    pub(super) fn by_source(&self, name: &str, entry: &Entry<'_>) -> Cmd {
        self.command("EVAL", self.source, name, entry)
    }

    fn command(&self, kind: &str, script: &str, name: &str, entry: &Entry<'_>) -> Cmd {
        let size = kind.len() + script.len() + name.len() + entry.value.len() + 24;
        let mut command = Cmd::with_capacity(6, size);
        command.arg(kind).arg(script).arg(1).arg(name).arg(entry.value);
        if self.takes_ttl {
            command.arg(millis(entry.ttl));
        }
        command
    }
}

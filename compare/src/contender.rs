//! Who takes part, and in what.

use crate::party::{self, Party};
use crate::peers::async_redis_lock::AsyncRedisLock;
use crate::peers::attribute::Attribute;
use crate::peers::distkit::Distkit;
use crate::peers::distributed_lock::DistributedLock;
use crate::peers::floor::Floor;
use crate::peers::ideal::Ideal;
use crate::peers::majority::Majority;
use crate::peers::rslock::Rslock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Floor,
    Distlock,
    Rslock,
    AsyncRedisLock,
    Distkit,
    DistributedLock,
    RedisPy,
    NodeRedlock,
    Ideal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Uncontended,
    Delayed,
    Contended,
    Held,
    Redlock,
}

/// A program in another language, which speaks as a [`Party`] does.
pub(crate) struct Script {
    pub(crate) program: &'static str,
    pub(crate) file: &'static str,
    /// What prints the versions, or fails where something is missing.
    pub(crate) versions: [&'static str; 2],
    /// Where else the packages may be, and the variable that tells the program.
    pub(crate) path: [&'static str; 2],
}

impl Contender {
    /// The floor, which the others are held against, is the first. The ideal takes part under contention only.
    pub(crate) const ALL: [Contender; 9] = [
        Contender::Floor,
        Contender::Distlock,
        Contender::Rslock,
        Contender::AsyncRedisLock,
        Contender::Distkit,
        Contender::DistributedLock,
        Contender::RedisPy,
        Contender::NodeRedlock,
        Contender::Ideal,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Floor => "by hand",
            Contender::Distlock => "distlock",
            Contender::Rslock => "rslock",
            Contender::AsyncRedisLock => "async-redis-lock",
            Contender::Distkit => "distkit",
            Contender::DistributedLock => "distributed-lock",
            Contender::RedisPy => "redis-py",
            Contender::NodeRedlock => "node-redlock",
            Contender::Ideal => "tokio Mutex, no server",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Contender> {
        Contender::ALL.into_iter().find(|known| known.name() == name)
    }

    pub(crate) fn script(self) -> Option<Script> {
        match self {
            Contender::RedisPy => Some(Script {
                program: "python3",
                file: "redis_py.py",
                versions: [
                    "-c",
                    "import redis, platform; print(redis.__version__, 'on Python', platform.python_version())",
                ],
                path: ["COMPARE_PYTHON_PATH", "PYTHONPATH"],
            }),
            Contender::NodeRedlock => Some(Script {
                program: "node",
                file: "node_redlock.js",
                versions: [
                    "-e",
                    "const v = name => JSON.parse(require('fs').readFileSync(require.resolve(name).replace(\
                     new RegExp('(node_modules/' + name + ')/.*'), '$1/package.json'))).version; \
                     console.log(v('redlock'), 'with ioredis', v('ioredis'), 'on Node.js', process.versions.node)",
                ],
                path: ["COMPARE_NODE_PATH", "NODE_PATH"],
            }),
            _ => None,
        }
    }

    /// Why a contender can't take part, if it can't.
    pub(crate) fn absence(self, workload: Workload) -> Option<&'static str> {
        match (self, workload) {
            (Contender::AsyncRedisLock | Contender::Distkit | Contender::RedisPy, Workload::Redlock) => {
                Some("knows one server only")
            }
            (Contender::RedisPy, Workload::Held) => Some("no renewal: the application has to call `extend`"),
            (Contender::DistributedLock, Workload::Contended) => {
                Some("does not wait: `acquire` fails at once while another has the lock")
            }
            _ => None,
        }
    }

    /// Those that a workload's table has rows for.
    pub(crate) fn of(workload: Workload) -> impl Iterator<Item = Contender> {
        let with_ideal = workload == Workload::Contended;
        Contender::ALL.into_iter().filter(move |contender| with_ideal || *contender != Contender::Ideal)
    }

    /// In a process of its own: does what it is told on standard input.
    pub(crate) fn serve(self, party: &Party) {
        match self {
            Contender::Floor if party.site.urls.len() > 1 => party::serve::<Majority>(party),
            Contender::Floor => party::serve::<Floor>(party),
            Contender::Distlock => party::serve::<Attribute>(party),
            Contender::Rslock => party::serve::<Rslock>(party),
            Contender::AsyncRedisLock => party::serve::<AsyncRedisLock>(party),
            Contender::Distkit => party::serve::<Distkit>(party),
            Contender::DistributedLock => party::serve::<DistributedLock>(party),
            Contender::Ideal => party::serve::<Ideal>(party),
            Contender::RedisPy | Contender::NodeRedlock => unreachable!("these are scripts"),
        }
    }
}

impl Workload {
    pub(crate) const ALL: [Workload; 5] =
        [Workload::Uncontended, Workload::Delayed, Workload::Contended, Workload::Held, Workload::Redlock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Uncontended => "uncontended",
            Workload::Delayed => "delayed",
            Workload::Contended => "contended",
            Workload::Held => "held",
            Workload::Redlock => "redlock",
        }
    }
}

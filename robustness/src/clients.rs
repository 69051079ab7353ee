//! The client processes, their ways to the servers, and their clocks.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use harness::faketime::FakeClock;
use harness::process::Child;
use harness::proxy::Proxy;

use crate::client::Orders;
use crate::rights;
use crate::settings::{Plant, Topology};
use crate::world::World;

pub(crate) struct Clients {
    pub(crate) all: Vec<Client>,
    folder: PathBuf,
    seed: u64,
    plant: Option<Plant>,
    /// How many there have been.
    count: AtomicU64,
}

pub(crate) struct Client {
    pub(crate) child: Child,
    pub(crate) links: Vec<Proxy>,
    pub(crate) clock: FakeClock,
}

impl Clients {
    pub(crate) async fn start(world: &World, many: usize, seed: u64, folder: PathBuf, plant: Option<Plant>) -> Clients {
        let mut clients = Clients { all: Vec::new(), folder, seed, plant, count: 0.into() };
        for _ in 0..many {
            let (links, clock) = (world.links().await, FakeClock::new());
            let child = clients.spawn(world, &links, &clock).await;
            clients.all.push(Client { child, links, clock });
        }
        for client in &clients.all {
            client.child.event("works").await;
        }
        clients
    }

    /// Kills a client, and starts another one in its place.
    pub(crate) async fn replace(&mut self, world: &World, at: usize) {
        self.all[at].child.kill();
        let child = self.spawn(world, &self.all[at].links, &self.all[at].clock).await;
        self.all[at].child = child;
    }

    async fn spawn(&self, world: &World, links: &[Proxy], clock: &FakeClock) -> Child {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let orders = Orders {
            locks: rights::logged_in(&world.url(links)),
            store: world.store.url(),
            folder: self.folder.clone(),
            number,
            seed: self.seed.wrapping_add(number),
            acks: world.acks,
            only_exclusive: world.topology == Topology::Redlock,
        };
        let arguments = orders.to_arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let clock = clock.environment();
        let mut environment: Vec<_> = clock.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.extend(self.plant.map(|plant| ("DISTLOCK_PLANTED", plant.name())));
        Child::spawn_with("client", &arguments, &environment).await
    }
}

//! What happens when: a function of the seed, and the same in every mode.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::world::{INSTANCES, TTL};

/// Groups of orders, each with a fault that comes while they are being paid.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// When its customers come, from the beginning.
    pub(crate) begins: Duration,
    pub(crate) fault: Fault,
    /// When the fault comes, counted from when the provider has been asked for the first of the charges. It has not answered by then.
    pub(crate) strikes_after: Duration,
    /// How long it lasts.
    pub(crate) lasts: Duration,
    /// The instance that it hits; the group's customers tap there first.
    pub(crate) instance: usize,
    pub(crate) orders: Vec<Order>,
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) amount: u32,
    /// The customer's devices. Each has an idempotency key of its own.
    pub(crate) devices: Vec<Device>,
}

#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) taps: Vec<Tap>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    /// From the beginning.
    pub(crate) at: Duration,
    pub(crate) instance: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    FreezeInstance,
    KillInstance,
    FreezeRedis,
    RestartRedis,
}

impl Plan {
    pub(crate) fn of(seed: u64, quick: bool) -> Plan {
        let mut random = Rng::with_seed(seed);
        let mut faults = [Fault::FreezeInstance, Fault::KillInstance, Fault::FreezeRedis, Fault::RestartRedis];
        random.shuffle(&mut faults);
        // A frozen instance is not also killed: that would free it from the pause.
        let frozen = random.usize(..INSTANCES);
        let killed = (frozen + random.usize(1..INSTANCES)) % INSTANCES;
        let orders = if quick { 2 } else { 3 };
        let groups = faults.into_iter().zip(0_u32..).map(|(fault, at)| {
            let instance = match fault {
                Fault::FreezeInstance => frozen,
                Fault::KillInstance => killed,
                Fault::FreezeRedis | Fault::RestartRedis => random.usize(..INSTANCES),
            };
            Group::of(&mut random, fault, instance, at, orders)
        });
        Plan { groups: groups.collect() }
    }

    pub(crate) fn orders(&self) -> usize {
        self.groups.iter().map(|group| group.orders.len()).sum()
    }

    pub(crate) fn describe(&self) -> Vec<String> {
        self.groups.iter().map(Group::to_string).collect()
    }
}

impl Group {
    fn of(random: &mut Rng, fault: Fault, instance: usize, at: u32, orders: u32) -> Group {
        let begins = Duration::from_millis(1_900) * at;
        let strikes_after = milliseconds(random, 20, 250);
        let lasts = match fault {
            Fault::FreezeInstance => TTL + milliseconds(random, 800, 1_400),
            Fault::KillInstance => milliseconds(random, 600, 1_200),
            Fault::FreezeRedis => TTL + milliseconds(random, 300, 600),
            Fault::RestartRedis => milliseconds(random, 50, 300),
        };
        let orders = (0..orders).map(|at| Order::of(random, begins, instance, at)).collect();
        Group { begins, fault, strikes_after, lasts, instance, orders }
    }
}

impl Order {
    /// The first device taps three times, the second one twice. The first order of a group is tapped first at the instance that
    /// the fault will hit. For the second one, both devices tap at the same moment, at different instances: two people, one
    /// order. The third one is like the first, but somewhere else.
    fn of(random: &mut Rng, begins: Duration, instance: usize, at: u32) -> Order {
        let begins = begins + Duration::from_millis(450) * at;
        let elsewhere = (instance + at as usize) % INSTANCES;
        let first = Tap { at: begins, instance: elsewhere };
        let mut later =
            |least, most| Tap { at: begins + milliseconds(random, least, most), instance: random.usize(..INSTANCES) };
        let second = match at {
            1 => Tap { at: begins, instance: (elsewhere + 1) % INSTANCES },
            _ => later(80, 200),
        };
        let devices = vec![
            Device { taps: vec![first, later(120, 240), later(300, 600)] },
            Device { taps: vec![second, later(400, 900)] },
        ];
        Order { amount: random.u32(100..100_000), devices }
    }
}

fn milliseconds(random: &mut Rng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.u64(least..=most))
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begins, lasts) = (self.begins.as_secs_f64(), self.lasts.as_secs_f64());
        let (orders, what) = (self.orders.len(), self.fault.told(self.instance));
        let after = self.strikes_after.as_millis();
        write!(f, "after {begins:.1} s {orders} orders are paid; {after} ms into that, {what} for {lasts:.1} s")
    }
}

impl Fault {
    pub(crate) fn told(self, instance: usize) -> String {
        match self {
            Fault::FreezeInstance => format!("instance {instance} stands still"),
            Fault::KillInstance => format!("instance {instance} is killed, and away"),
            Fault::FreezeRedis => "Redis stands still".to_owned(),
            Fault::RestartRedis => "Redis is killed, forgets everything, and is away".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let twice = [Plan::of(7, false), Plan::of(7, false)].map(|plan| format!("{plan:?}"));
        assert_eq!(twice[0], twice[1]);
        assert_ne!(twice[0], format!("{:?}", Plan::of(8, false)));
    }

    #[test]
    fn the_frozen_instance_is_not_the_one_that_is_killed() {
        for seed in 0..200 {
            let plan = Plan::of(seed, true);
            let hit = |fault| plan.groups.iter().find(|group| group.fault == fault).map(|group| group.instance);
            assert_ne!(hit(Fault::FreezeInstance), hit(Fault::KillInstance), "seed {seed}");
        }
    }
}

//! Counts what a server does.
//!
//! `INFO commandstats` counts the commands that scripts run together with those that clients send. `MONITOR` tells them
//! apart, but slows the server down. So the rounds are counted by the former, and a short sample beforehand, watched by
//! the latter, gives for each command the part that clients send: for most all or nothing.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use redis::{Client, Connection, Value, cmd};

/// Says when a sample is over; nobody else sends it.
const END: &str = "the sample is over";

/// How often each command was run, by its name.
pub(crate) type Counts = BTreeMap<String, u64>;

/// For each command the part that clients sent.
pub(crate) type Sent = BTreeMap<String, f64>;

/// A look at the server from outside.
pub(crate) struct Meter {
    client: Client,
    connection: Connection,
}

impl Meter {
    pub(crate) fn connect(url: &str) -> Meter {
        let client = Client::open(url).unwrap();
        let connection = client.get_connection().unwrap();
        Meter { client, connection }
    }

    /// All commands so far, without `INFO`, by which they are counted.
    pub(crate) fn counts(&mut self) -> Counts {
        let text: String = cmd("INFO").arg("commandstats").query(&mut self.connection).unwrap();
        let mut counts = Counts::new();
        for (name, calls) in text.lines().filter_map(command) {
            *counts.entry(name.to_owned()).or_default() += calls;
        }
        counts.remove("info");
        counts
    }

    /// Watches every command, until [`Self::finish`].
    pub(crate) fn watch(&self) -> JoinHandle<Sent> {
        let mut monitor = self.client.get_connection().unwrap();
        monitor.send_packed_command(&cmd("MONITOR").get_packed_command()).unwrap();
        assert_eq!(monitor.recv_response().unwrap(), Value::Okay);
        std::thread::spawn(move || sent(monitor))
    }

    pub(crate) fn finish(&mut self, sample: JoinHandle<Sent>) -> Sent {
        cmd("ECHO").arg(END).exec(&mut self.connection).unwrap();
        sample.join().unwrap()
    }
}

/// Reads a line such as `cmdstat_script|load:calls=2,usec=25,..`; a command's parts are counted as one.
pub(crate) fn command(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    let (calls, _) = rest.split_once(',')?;
    Some((name.split('|').next()?, calls.parse().ok()?))
}

fn sent(mut monitor: Connection) -> Sent {
    let (mut by_clients, mut all) = (Sent::new(), Sent::new());
    loop {
        let Value::SimpleString(line) = monitor.recv_response().unwrap() else { panic!("MONITOR prints lines") };
        if line.contains(END) {
            break;
        }
        // Such as `1700000000.000001 [0 127.0.0.1:60866] "SET" "key"`, with `lua` for the address in a script.
        let (source, command) = line.split_once("] \"").unwrap();
        let name = command.split('"').next().unwrap().to_lowercase();
        *by_clients.entry(name.clone()).or_default() += if source.ends_with(" lua") { 0.0 } else { 1.0 };
        *all.entry(name).or_default() += 1.0;
    }
    by_clients.into_iter().map(|(name, count)| (name.clone(), count / all[&name])).collect()
}

//! A network with a delay, before a server.
//!
//! `tc netem` would be the real thing, but many kernels come without it, and it takes the rights of root. What is delayed
//! here are packets in a queue: each goes on at its own time, so that no bandwidth is lost. Each direction has two threads,
//! whose sleeps end to the microsecond; tokio's timers count milliseconds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use crate::Failure;
use crate::by_hand;
use crate::statistics::Spread;

/// Returns the URL of a server, seen over such a network.
pub(crate) fn before(url: &str, delay: Duration) -> Result<String, Failure> {
    let server = url.rsplit_once('/').map_or(url, |(_, address)| address).to_owned();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // The server is gone when its contender is done, and so is whoever asked.
            let _ = TcpStream::connect(&server).and_then(|server| join(&client, &server, delay));
        }
    });
    Ok(format!("redis://{address}"))
}

fn join(client: &TcpStream, server: &TcpStream, delay: Duration) -> std::io::Result<()> {
    for (from, to) in [(client, server), (server, client)] {
        to.set_nodelay(true)?;
        let (from, to, (packets, queue)) = (from.try_clone()?, to.try_clone()?, channel());
        std::thread::spawn(move || take(from, &packets, delay));
        std::thread::spawn(move || give(to, &queue));
    }
    Ok(())
}

type Packet = (Instant, Vec<u8>);

fn take(mut from: TcpStream, packets: &Sender<Packet>, delay: Duration) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        let due = Instant::now() + delay;
        if length == 0 || packets.send((due, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
}

fn give(mut to: TcpStream, queue: &Receiver<Packet>) {
    // The kernel may let a sleep last 50 us longer unless it is told not to.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    for (due, bytes) in queue {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// How long a `PING` takes there and back, in microseconds.
pub(crate) fn round_trip(url: &str) -> Result<Option<Spread>, Failure> {
    let mut connection: Connection = by_hand::client(url).get_connection()?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let begin = Instant::now();
        cmd("PING").exec(&mut connection)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::of(times))
}

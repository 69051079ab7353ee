//! Several processes and one Redis: four of them charge the same five orders, and every order is charged once. Then one
//! process is killed while it holds a lock, and the others go on when its lease has ended.
//!
//! `REDIS_URL=redis://127.0.0.1 cargo run --example two_processes`; that address is also the default.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, distributed_lock};

const ORDERS: std::ops::Range<u32> = 1..6;
const LEASE: Duration = Duration::from_secs(2);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

// Looks whether the order has been charged, then charges it: two steps that nobody may come between.
#[distributed_lock(key = "example:order:<order>", ttl = LEASE, retry = 100)]
async fn charge(ledger: &Path, order: u32) -> Outcome<bool> {
    let file = ledger.join(order.to_string());
    if file.exists() {
        return Ok(false);
    }
    // The payment provider takes its time, long enough for the other processes to look as well.
    tokio::time::sleep(Duration::from_millis(50)).await;
    writeln!(OpenOptions::new().create(true).append(true).open(file)?, "charged by {}", std::process::id())?;
    Ok(true)
}

#[distributed_lock(key = "example:order:<order>", ttl = LEASE)]
async fn hold(order: u32) -> Result<(), LockError> {
    println!("holding");
    std::future::pending().await
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    LockManager::connect(&url).await?.install()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => parent().await,
        ["charge", ledger] => charge_all(Path::new(ledger)).await,
        ["hold"] => Ok(hold(99).await?),
        other => Err(format!("unknown arguments {other:?}; run it without any").into()),
    }
}

async fn parent() -> Outcome<()> {
    let ledger = Ledger::new()?;
    println!("four processes charge the same {} orders:", ORDERS.len());
    let ledger_path = ledger.0.to_string_lossy().into_owned();
    let mut children = Vec::new();
    for _ in 0..4 {
        children.push(start(&["charge", &ledger_path])?);
    }
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a process that charges orders failed".into());
        }
    }
    for order in ORDERS {
        let charges = fs::read_to_string(ledger.0.join(order.to_string()))?.lines().count();
        println!("  order {order}: {charges} charge");
        assert_eq!(charges, 1, "order {order} was charged {charges} times");
    }
    survive_a_crash(&ledger.0).await
}

async fn survive_a_crash(ledger: &Path) -> Outcome<()> {
    let mut holder = start(&["hold"])?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().ok_or("the holder has no output")?).read_line(&mut line)?;
    println!("process {} holds order 99 under a lease of {LEASE:?}, and is killed", holder.id());
    holder.kill()?;
    holder.wait()?;

    let begin = Instant::now();
    charge(ledger, 99).await?;
    println!("this process got the lock {:.1} s later, when the lease had ended", begin.elapsed().as_secs_f64());
    Ok(())
}

async fn charge_all(ledger: &Path) -> Outcome<()> {
    for order in ORDERS {
        let charged = charge(ledger, order).await?;
        println!(
            "  process {}: order {order} {}",
            std::process::id(),
            if charged { "charged" } else { "was charged already" }
        );
    }
    Ok(())
}

fn start(arguments: &[&str]) -> io::Result<Child> {
    let output = if arguments == ["hold"] { Stdio::piped() } else { Stdio::inherit() };
    Command::new(std::env::current_exe()?).args(arguments).stdout(output).spawn()
}

/// A folder with a file for each order that was charged. It stands for a database without a unique index.
struct Ledger(PathBuf);

impl Ledger {
    fn new() -> io::Result<Ledger> {
        let folder = std::env::temp_dir().join(format!("distlock-example-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Ledger(folder))
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

//! The shortest whole program: eight requests for three orders at once, each order paid by one request at a time.
//!
//! `cargo run --example quickstart` keeps the locks in memory. With `REDIS_URL=redis://127.0.0.1` they are on Redis: start
//! it in two terminals at once, and the two processes take turns as well.

use std::error::Error;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, distributed_lock};
use tokio::sync::Mutex;

static PAYMENTS: Mutex<Vec<Payment>> = Mutex::const_new(Vec::new());

struct Payment {
    order: u64,
    begin: Instant,
    end: Instant,
}

// One lock for each order. Whoever does not get it tries again, up to 30 times.
#[distributed_lock(key = "order:<id>", ttl = "5s", retry = 30)]
async fn pay(id: u64, request: u64, asked: Instant) -> Result<(), LockError> {
    let begin = Instant::now();
    println!("request {request} pays order {id}, after waiting for {:>4} ms", (begin - asked).as_millis());

    // What must not happen twice at a time: here it only takes a while.
    tokio::time::sleep(Duration::from_millis(60)).await;

    PAYMENTS.lock().await.push(Payment { order: id, begin, end: Instant::now() });
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = match std::env::var("REDIS_URL") {
        Ok(url) => LockManager::connect(&url).await?,
        Err(_) => LockManager::in_memory(),
    };
    // From here on, annotated functions of this process use it.
    locks.install()?;

    let requests: Vec<_> = (0..8).map(|request| tokio::spawn(pay(request % 3, request, Instant::now()))).collect();
    for request in requests {
        request.await??;
    }
    report().await;
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

async fn report() {
    let mut payments = PAYMENTS.lock().await;
    payments.sort_by_key(|payment| (payment.order, payment.begin));
    let neighbours = payments.iter().zip(payments.iter().skip(1));
    let overlaps = neighbours.filter(|(one, next)| one.order == next.order && next.begin < one.end).count();
    println!("{} payments of 3 orders; {overlaps} of them overlapped", payments.len());
    assert_eq!(overlaps, 0, "two requests paid the same order at the same time");
}

#![no_implicit_prelude]
#![deny(warnings)]
#![forbid(unsafe_code)]
#![allow(dead_code, unused_imports, unused_macros)]

use ::distlock::{LockError, distributed_lock};
use ::std::result::Result as Plain;

type Result = Plain<u64, LockError>;

enum Shadows {
    Ok,
    Err,
    Some,
    None,
    Option,
    Duration,
}

use Shadows::*;

struct String;
struct Box;

mod core {}
mod std {}
mod distlock {}

macro_rules! format_args {
    ($($tokens:tt)*) => {
        compile_error!("not the user's own")
    };
}

macro_rules! concat {
    ($($tokens:tt)*) => {
        compile_error!("not the user's own")
    };
}

fn run() {}
fn manager() {}

#[distributed_lock(key = "{key}:{call}:{ret}:{lock}", ttl = "30s", backoff = "1s..2s", lease = lease)]
async fn names(key: u64, call: u64, ret: u64, lock: u64, ttl: u64, token: u64, guard: u64, result: u64) -> Result {
    lease.ensure_held()?;
    Plain::Ok(key + call + ret + lock + ttl + token + guard + result)
}

fn main() {
    let _ = names(1, 2, 3, 4, 5, 6, 7, 8);
}

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

macro_rules! module_path {
    ($($tokens:tt)*) => {
        compile_error!("not the user's own")
    };
}

fn run() {}
fn begin() {}
fn drop() {}
fn manager() {}

#[distributed_lock(key = "{key}:{call}:{ret}:{lock}", ttl = "30s", backoff = "1s..2s", lease = lease)]
async fn names(key: u64, call: u64, ret: u64, lock: u64, ttl: u64, token: u64, guard: u64, result: u64) -> Result {
    lease.ensure_held()?;
    Plain::Ok(key + call + ret + lock + ttl + token + guard + result)
}

#[distributed_lock(key = "{key}:{call}:{ret}:{lock}", ttl = "30s", backoff = "1s..2s", lease = lease, or_else = move |_| ret)]
#[distributed_lock(key = manager, or_else = move |_| call)]
fn future(key: u64, call: u64, ret: u64, lock: u64, manager: u64) -> impl ::core::future::Future<Output = u64> {
    async move {
        let _ = lease.is_held();
        key + call + ret + lock + manager
    }
}

#[distributed_lock(key = "{key}:{call}", lease = result)]
fn boxed(key: u64, call: u64) -> ::std::pin::Pin<::std::boxed::Box<dyn ::core::future::Future<Output = Result>>> {
    ::std::boxed::Box::pin(async move {
        result.ensure_held()?;
        Plain::Ok(key + call)
    })
}

/// A pattern may also be one of these.
#[allow(non_upper_case_globals, non_camel_case_types)]
mod items {
    use ::distlock::{LockError, distributed_lock};
    use ::std::result::Result::{self, Ok};

    pub(super) struct call;
    pub(super) struct body;
    pub(super) struct options(u8);
    pub(super) const key: u8 = 1;
    pub(super) const ret: u8 = 1;
    pub(super) const __arg0: u8 = 1;
    pub(super) static __lease0: u8 = 1;

    #[distributed_lock(key = "{a}:{b}", lease = lease, retry = a as u32)]
    pub(super) async fn locked((a, _): (u8, u8), b: u8) -> Result<u8, LockError> {
        lease.ensure_held()?;
        Ok(a)
    }

    #[distributed_lock(key = "{a}:{b}", lease = lease)]
    pub(super) fn future(
        (a, _): (u8, u8),
        b: u8,
    ) -> impl ::core::future::Future<Output = Result<u8, LockError>> {
        async move {
            lease.ensure_held()?;
            Ok(a)
        }
    }
}

fn main() {
    let _ = (items::locked((1, 2), 3), items::future((1, 2), 3));
    let _ = names(1, 2, 3, 4, 5, 6, 7, 8);
    let _ = future(1, 2, 3, 4, 5);
    let _ = boxed(1, 2);
}

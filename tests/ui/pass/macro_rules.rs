#![deny(warnings)]
#![forbid(unsafe_code)]

use distlock::{LockError, distributed_lock};

macro_rules! locked {
    ($name:ident, $id:ident, $key:expr, $ttl:literal) => {
        #[distributed_lock(key = $key, ttl = $ttl)]
        async fn $name($id: u64) -> Result<u64, LockError> {
            Ok($id)
        }
    };
}

macro_rules! locked_by_its_own_names {
    ($name:ident, $retry:expr) => {
        #[distributed_lock(key = "made:<id>", retry = $retry)]
        async fn $name(id: u64) -> $crate::Answer {
            let call = id;
            Ok(call)
        }
    };
}

type Answer = Result<u64, LockError>;

locked!(given, id, "given:<id>", "30s");
locked_by_its_own_names!(made, 3);

fn main() {
    let _ = given(1);
    let _ = made(1);
}

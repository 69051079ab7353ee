#![deny(warnings)]
#![forbid(unsafe_code)]

use std::future::Future;
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

macro_rules! locked_with_body {
    ($(#[$attr:meta])* $vis:vis $name:ident($($param:pat => $ty:ty),*) -> $ret:ty, $key:literal, $retry:expr, $body:block) => {
        #[distributed_lock(key = $key, retry = $retry)]
        $(#[$attr])*
        $vis async fn $name($($param: $ty),*) -> $ret $body
    };
}

macro_rules! returning {
    ($name:ident, $id:ident: $ty:ty, $ret:ty, $lease:ident, $body:block, $future:expr) => {
        #[distributed_lock(key = "returned:<id>", lease = $lease)]
        fn $name($id: $ty) -> $ret {
            Box::pin(async move $body)
        }

        mod blocks {
            use super::*;

            #[distributed_lock(key = "block:<id>", lease = $lease)]
            pub(super) fn $name($id: $ty) -> impl Future<Output = Answer> {
                async move $body
            }
        }

        mod futures {
            use super::*;

            #[distributed_lock(key = $id)]
            pub(super) fn $name($id: $ty) -> $ret {
                $future
            }
        }
    };
}

macro_rules! handed_on {
    ($name:ident, $krate:path, $on_lost:expr, $or_else:expr, $flag:literal, $locks:ident, $manager:expr) => {
        #[distributed_lock(
            key = "handed:<id>", crate = $krate, on_lost = $on_lost, or_else = $or_else, watchdog = $flag, manager = $manager,
            lease = $name
        )]
        async fn $name(id: u64, $locks: &distlock::LockManager) -> u64 {
            if $name.is_held() { id } else { 0 }
        }
    };
}

macro_rules! attribute_with {
    ($($args:tt)*) => {
        #[distributed_lock($($args)*)]
        #[distributed_lock(key = "made", global)]
        async fn with(id: u64) -> Result<u64, LockError> {
            Ok(id)
        }
    };
}

locked_with_body!(#[must_use] pub(crate) body((id, _) => (u64, u64), r#type => u8) -> Answer, "body:<id>:<r#type>", 2 + 1, {
    let _: u8 = r#type;
    Ok(id)
});

type Answer = Result<u64, LockError>;

locked!(given, id, "given:<id>", "30s");
locked_by_its_own_names!(made, 3);

returning!(returned, id: u64, std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>, lease, {
    lease.ensure_held()?;
    Ok(id)
}, Box::pin(async move { Ok(id) }));
handed_on!(handed, ::distlock, finish, |_| 0, true, locks, locks);
attribute_with!(r#retry = 2, r#key = "with:{id:04}", ttl = "30s");

fn main() {
    let _ = body((1, 2), 3);
    let _ = (returned(1), futures::returned(1), blocks::returned(1), with(1));
    let _ = given(1);
    let _ = handed(1, &distlock::LockManager::in_memory());
    let _ = made(1);
}

//! Functions of which the compiler or clippy has something to say. The attribute stands alone on its line, on top.

use std::fmt::Debug;
use std::rc::Rc;

use distlock::{LockError, distributed_lock};

async fn next(id: u64) -> u64 {
    std::future::ready(id).await
}

#[deprecated]
async fn old(id: u64) -> u64 {
    std::future::ready(id).await
}

#[must_use]
async fn important(id: u64) -> Result<u64, LockError> {
    Ok(next(id).await)
}

// Not a lint: what is left of the last expression goes before the parameters in every edition, or `m` would be borrowed.
#[distributed_lock(key = "k", global)]
async fn temporary_at_the_end(m: std::sync::Mutex<u64>) -> Result<u64, LockError> {
    next(1).await;
    Ok(*m.lock().unwrap())
}

#[distributed_lock(key = "k", global)]
async fn unused_parameter(id: u64, by: String) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", global)]
async fn unused_binding((id, by): (u64, u64), [first, ..]: [u8; 2]) -> Result<u64, LockError> {
    Ok(next(id).await)
}

#[distributed_lock(key = "k", global)]
async fn unused_mut_parameter(mut id: u64) -> Result<u64, LockError> {
    Ok(next(id).await)
}

#[distributed_lock(key = "k", global)]
async fn unused_variables(id: u64) -> Result<u64, LockError> {
    let x = 1;
    let mut y = next(id).await;
    Ok(y)
}

#[distributed_lock(key = "k", global)]
async fn unused_assignment(mut id: u64) -> Result<u64, LockError> {
    id = 5;
    let mut n = next(1).await;
    n = 2;
    Ok(1)
}

#[distributed_lock(key = "k", global)]
async fn used_underscore(_id: u64) -> Result<u64, LockError> {
    Ok(next(_id).await)
}

#[distributed_lock(key = "k", global)]
async fn unreachable(id: u64) -> Result<u64, LockError> {
    return Ok(next(id).await);
    next(id).await;
}

#[distributed_lock(key = "k", global)]
async fn unreachable_after_loop(id: u64) -> Result<u64, LockError> {
    loop {
        next(id).await;
    }
    Ok(id)
}

#[distributed_lock(key = "k", global)]
async fn empty_loop() -> Result<u64, LockError> {
    loop {}
}

#[distributed_lock(key = "k", global)]
async fn unused_results(id: u64) -> Result<(), LockError> {
    important(id).await;
    next(id);
    id + 1;
    old(id).await;
    Ok(())
}

#[distributed_lock(key = "k", global)]
async fn items_first(id: u64) -> Result<u64, LockError> {
    const X: u64 = 1;
    Ok(next(id).await + X)
}

#[distributed_lock(key = "k", global)]
async fn items_late(id: u64) -> Result<u64, LockError> {
    next(id).await;
    const X: u64 = 1;
    Ok(id + X)
}

#[distributed_lock(key = "k", global)]
async fn needless_return(id: u64) -> Result<u64, LockError> {
    return Ok(next(id).await);
}

#[distributed_lock(key = "k", global)]
async fn needless_returns(id: u64) -> Result<u64, LockError> {
    if id == 1 {
        return Ok(next(id).await);
    } else {
        return Err(LockError::NotInstalled);
    }
}

#[distributed_lock(key = "k", or_else = drop)]
async fn needless_return_of_nothing() {
    next(1).await;
    return;
}

#[distributed_lock(key = "k", global)]
async fn return_in_braces(id: u64) -> Result<u64, LockError> {
    { return Ok(next(id).await) }
}

#[distributed_lock(key = "k", global)]
async fn let_and_return(id: u64) -> Result<u64, LockError> {
    let answer = Ok(next(id).await);
    answer
}

#[distributed_lock(key = "k", global)]
async fn needless_question_mark(id: u64) -> Result<u64, LockError> {
    let answer = important(id).await;
    Ok(answer?)
}

#[distributed_lock(key = "k", global)]
async fn needless_ok(id: u64) -> Result<u64, LockError> { return Ok(important(id).await?) }

#[distributed_lock(key = "k", global)]
async fn one_line(id: u64) -> Result<u64, LockError> { Ok(next(id).await) }

#[distributed_lock(key = "k", or_else = drop)]
async fn nothing() {}

#[distributed_lock(key = "k", or_else = drop)]
async fn explicit_unit() -> () {
    next(1).await;
}

#[distributed_lock(key = "k", or_else = drop)]
async fn empty_statement() { ; }

#[distributed_lock(key = "k", or_else = drop)]
async fn unit_at_the_end() { next(1).await; () }

#[distributed_lock(key = "k", global)]
async fn clones_and_casts(id: u64) -> Result<u64, LockError> {
    let id = next(id).await as u8;
    let id = id as u64;
    println!("{}", id);
    Ok(id.clone())
}

#[distributed_lock(key = "k", global)]
async fn by_value(text: String, list: &Vec<u8>) -> Result<u64, LockError> {
    Ok(next(text.len() as u64 + list.len() as u64).await)
}

#[distributed_lock(key = "k", global, or_else = |_| None)]
async fn other_than_result(id: Option<u64>) -> Option<u64> {
    match id {
        Some(id) => Some(next(id).await),
        None => None,
    }
}

#[distributed_lock(key = "k", global)]
async fn panics(id: Option<u64>) -> Result<u64, LockError> {
    if id.is_none() {
        panic!("none");
    }
    Ok(next(id.unwrap()).await)
}

#[distributed_lock(key = "k", global)]
/// It panics, and doesn't say when; it fails, and doesn't say why.
pub async fn undocumented_panic(id: Option<u64>) -> Result<u64, LockError> {
    Ok(next(id.unwrap()).await)
}

#[distributed_lock(key = "k", global)]
pub async fn undocumented(id: u64) -> Result<u64, LockError> {
    Ok(next(id).await)
}

#[distributed_lock(key = "k", global)]
/// It is not `Send`.
///
/// # Errors
///
/// Always.
pub async fn not_send(id: Rc<u64>) -> Result<u64, LockError> {
    Ok(next(*id).await)
}

#[distributed_lock(key = "k", global)]
#[deprecated]
async fn deprecated(id: u64) -> Result<u64, LockError> {
    Ok(next(id).await)
}

#[distributed_lock(key = "k", global)]
#[must_use = "it matters"]
async fn must_use(id: u64) -> Result<u64, LockError> {
    Ok(next(id).await)
}

/// Calls some of the above.
pub async fn calls() {
    deprecated(1).await;
    must_use(1);
    needless_return(1);
}

/// A shop.
#[derive(Debug)]
pub struct Shop(u64);

impl Shop {
    #[distributed_lock(key = "k", global)]
    /// It names its type.
    ///
    /// # Errors
    ///
    /// Never.
    pub async fn use_self(&self, other: Shop) -> Result<Shop, LockError> {
        let n = next(self.0 + other.0).await;
        Ok(Shop(n))
    }

    #[distributed_lock(key = "k", global)]
    async fn unused_self(&self, id: u64) -> Result<u64, LockError> {
        Ok(next(id).await)
    }

    #[distributed_lock(key = "k", global)]
    async fn wrong_self_convention(self) -> Result<u64, LockError> {
        Ok(next(self.0).await)
    }

    #[distributed_lock(key = "k", global)]
    async fn needless_lifetimes<'a>(&'a self, id: &'a u64) -> Result<u64, LockError> {
        Ok(next(self.0 + *id).await)
    }
}

#[distributed_lock(key = "k", global)]
async fn too_many(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> Result<u8, LockError> {
    std::future::ready(()).await;
    Ok(a + b + c + d + e + f + g + h)
}

#[distributed_lock(key = "k", global)]
async fn extra_bound<T: Debug>(value: T, unused: impl Debug) -> Result<String, LockError>
where
    T: Debug,
{
    std::future::ready(()).await;
    Ok(format!("{:?}", value))
}

#[distributed_lock(key = "k", global)]
async fn allowed_alone(#[allow(unused_variables)] id: u64, other: u64) -> Result<(), LockError> {
    #![allow(clippy::needless_return)]
    return Ok(());
}

#[distributed_lock(key = "k", global)]
async fn expected_in_vain(id: u64) -> Result<u64, LockError> {
    #[expect(unused_variables)]
    let n = next(id).await;
    #[expect(unused_variables)]
    let m = next(id).await;
    Ok(m)
}

#[distributed_lock(key = "k", global)]
async fn nested_blocks(id: u64) -> Result<u64, LockError> {
    let a = { id };
    let b = async { next(a).await }.await;
    match b {
        1 => (),
        _ => return Ok((a)),
    }
    let c = async move { return next(a).await };
    Ok(c.await)
}

/// A pair.
#[derive(Debug)]
pub struct Pair(u64, u64);

impl Pair {
    #[distributed_lock(key = "k", global)]
    async fn assigned_and_returned(mut self) -> Result<Self, LockError> {
        self.0 = next(1).await;
        Ok(self)
    }

    #[distributed_lock(key = "k", global)]
    async fn other_field_read(mut self) -> Result<u64, LockError> {
        self.0 = next(1).await;
        Ok(self.1)
    }

    #[distributed_lock(key = "k", global)]
    async fn replaced(mut self) -> Result<u64, LockError> {
        self = Self(next(1).await, 2);
        self.1 = 5;
        Ok(self.0)
    }

    #[distributed_lock(key = "k", global)]
    async fn unused_mut_self(mut self) -> Result<u64, LockError> {
        Ok(next(self.0).await)
    }
}

/// It is dropped with a sound.
#[derive(Debug)]
pub struct Loud(u64);

impl Drop for Loud {
    fn drop(&mut self) {
        println!("{}", self.0);
    }
}

impl Loud {
    #[distributed_lock(key = "k", global)]
    async fn read_again(mut self) -> Result<u64, LockError> {
        self.0 += next(1).await;
        Ok(self.0)
    }
}

#[distributed_lock(key = "k", global)]
async fn assigned(mut pair: Pair, mut loud: Loud, mut n: u64) -> Result<(), LockError> {
    pair.0 = next(1).await;
    loud.0 = 4;
    n = 5;
    Ok(())
}

#[distributed_lock(key = "k", global)]
async fn wild(_: Pair, ref by: Pair, pair @ Pair(_, _): Pair, _unused: u64, mut _used: u64) -> Result<u64, LockError> {
    Ok(next(pair.0 + by.1).await)
}

#[distributed_lock(key = "k:<id>:{pair.0}", ttl = "30s", retry = 3, max_hold = "5m")]
async fn with_a_key(id: u64, pair: Pair, text: String) -> Result<u64, LockError> {
    let n = text.len() as u64;
    return Ok(next(id + pair.1 + n).await);
}

#[distributed_lock(key = "k:<id>", or_else = |_| {})]
async fn with_or_else(id: u64) {
    next(id).await;
    return;
}

#[distributed_lock(key = "k:<id>", or_else = |_| Vec::new())]
async fn whole_pattern((id, _): (u64, u64)) -> Vec<u64> {
    let list = vec![next(id).await];
    list
}

#[distributed_lock(key = "k", global)]
async fn impl_trait(id: u64) -> Result<impl Iterator<Item = u64>, LockError> {
    return Ok(0..next(id).await);
}

#[distributed_lock(key = "k", global)]
pub(crate) async unsafe fn not_safe(id: u64) -> Result<u64, LockError> {
    Ok(next(id).await)
}

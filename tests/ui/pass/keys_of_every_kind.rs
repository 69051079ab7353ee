//! Keys whose operators, parentheses and ranges must stay what they are.

use std::future::Future;
use std::pin::Pin;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = id as u32)]
async fn cast(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = a.clone() + &b)]
async fn sum(a: String, b: String) -> Result<usize, LockError> {
    Ok(a.len() + b.len())
}

#[distributed_lock(key = a == b)]
async fn comparison(a: u8, b: u8) -> Result<u8, LockError> {
    Ok(a + b)
}

#[distributed_lock(key = ("order:<id>"))]
async fn in_parentheses(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "prefix:{(1..=2).map(|end| text[..end].to_owned()).collect::<String>()}")]
async fn range(text: &str) -> Result<usize, LockError> {
    Ok(text.len())
}

#[distributed_lock(key = "order:<id>", lease = r#try)]
fn raw_lease(id: u64) -> impl Future<Output = Result<u64, LockError>> {
    async move {
        r#try.ensure_held()?;
        Ok(id)
    }
}

#[distributed_lock(key = "order:<id>")]
fn in_a_box(id: u64) -> Pin<Box<(dyn Future<Output = Result<u64, LockError>> + Send + 'static)>> {
    Box::pin(async move { Ok(id) })
}

fn main() {
    drop((cast(1), sum(String::new(), String::new()), comparison(1, 2), in_parentheses(1), range("abc")));
    drop((raw_lease(1), in_a_box(1)));
}

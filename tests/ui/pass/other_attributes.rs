//! With attributes of others: what stands above ours is expanded before it, and is inside the lock.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::future::Future;
use distlock::{LockError, distributed_lock};
use tracing::instrument;

type Result<T = ()> = std::result::Result<T, LockError>;

#[instrument(skip_all, fields(id = pair.0), err)]
#[distributed_lock(key = "order:<id>", lease = lease)]
async fn span_inside(pair @ (id, _): (u64, u64)) -> Result<u64> {
    lease.ensure_held()?;
    Ok(id + pair.1)
}

#[distributed_lock(key = "order:<id>", lease = lease)]
#[instrument(level = "debug", ret, err)]
async fn span_around(id: u64, mut name: String) -> Result<u64> {
    lease.ensure_held()?;
    name.push('!');
    Ok(id + name.len() as u64)
}

#[distributed_lock(key = "order:<id>")]
#[instrument]
#[distributed_lock(key = "name:<name>")]
async fn span_around_two(id: u64, name: &str) -> Result<usize> {
    Ok(name.len())
}

/// What stands below knows the parameters by their names.
#[distributed_lock(key = "order:<id>", lease = lease)]
#[instrument(skip(_context), fields(tenant = %_tenant))]
#[allow(clippy::used_underscore_binding)]
async fn unused_names(id: u64, _context: std::sync::MutexGuard<'_, u8>, _tenant: &str, mut _count: u8) -> Result<u64> {
    lease.ensure_held()?;
    Ok(id)
}

#[rstest::fixture]
fn setup() {}

#[distributed_lock(key = "case:<id>")]
#[rstest::rstest]
#[case(1)]
#[tokio::test]
async fn cases(_setup: (), #[case] id: u64) -> Result {
    let _ = id;
    Ok(())
}

struct Repo(u64);

#[async_trait::async_trait]
trait Save {
    async fn span_inside(&self, id: u64) -> Result;
    async fn span_around(&self, id: u64) -> Result;
}

#[async_trait::async_trait]
impl Save for Repo {
    #[instrument(skip(self))]
    #[distributed_lock(key = "repo:<self.0>:<id>", lease = lease)]
    async fn span_inside(&self, id: u64) -> Result {
        lease.ensure_held()
    }

    #[distributed_lock(key = "repo:<self.0>:<id>", lease = lease)]
    #[instrument(skip(self))]
    async fn span_around(&self, id: u64) -> Result {
        lease.ensure_held()
    }
}

#[cfg_attr(all(), distributed_lock(key = "order:<id>"))]
#[cfg_attr(any(), must_use)]
async fn attributes_on_condition(#[cfg(all())] id: u64, #[cfg(any())] id: &str) -> Result<u64> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
fn parameters_on_condition(
    #[cfg(all())] id: u64,
    #[cfg(any())] id: &str,
    #[cfg_attr(all(), allow(unused_variables))] other: u8,
) -> impl Future<Output = Result<u64>> {
    async move { Ok(id) }
}

/// What web frameworks ask of a handler.
fn handler<F: Fn(A) -> R + Clone + Send + Sync + 'static, A, R: Future<Output = O> + Send + 'static, O>(_: F) {}

mod tests {
    #[distlock::distributed_lock(key = "test", global)]
    #[tokio::test]
    async fn above_the_test() -> super::Result {
        Ok(())
    }
}

#[distributed_lock(key = "main", or_else = |_| ())]
#[tokio::main(flavor = "current_thread")]
async fn main() {
    handler(span_inside);
    handler(attributes_on_condition);
    let mutex = std::sync::Mutex::new(1);
    drop(mutex.lock().map(|guard| unused_names(1, guard, "tenant", 1)));
    handler(parameters_on_condition_of_one);
    let _ = (span_around(1, String::new()), span_around_two(1, ""), parameters_on_condition(1, 2));
    let _ = (Repo(1).span_inside(1), Repo(1).span_around(1));
}

#[distributed_lock(key = "order:<id>")]
fn parameters_on_condition_of_one(id: u64) -> impl Future<Output = Result<u64>> + Send {
    std::future::ready(Ok(id))
}

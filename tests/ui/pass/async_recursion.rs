//! `#[async_recursion]` makes a boxed future of the function, before it is locked or after.
#![deny(warnings)]
#![forbid(unsafe_code)]

use async_recursion::async_recursion;
use distlock::{LockError, distributed_lock};

#[async_recursion]
#[distributed_lock(key = "above:<depth>", lease = lease)]
async fn above(depth: u32) -> Result<u32, LockError> {
    lease.ensure_held()?;
    Ok(if depth == 0 { 0 } else { above(depth - 1).await? + 1 })
}

#[distributed_lock(key = "below:<depth>:<name>", lease = lease)]
#[async_recursion]
async fn below(depth: u32, name: &str) -> Result<u32, LockError> {
    lease.ensure_held()?;
    Ok(if depth == 0 { 0 } else { below(depth - 1, name).await? + 1 })
}

struct Tree(Vec<Tree>);

impl Tree {
    #[async_recursion(?Send)]
    #[distributed_lock(key = "tree:{self.0.len()}:<from>")]
    async fn walk(&self, (from, mut _to): (u32, u32), mut sum: u32) -> Result<u32, LockError> {
        for tree in &self.0 {
            sum += tree.walk((from + 1, 2), 0).await?;
        }
        Ok(sum)
    }
}

fn send<T: Send>(_: T) {}

fn main() {
    send(above(3));
    send(below(3, "a"));
    let _ = Tree(vec![]).walk((1, 2), 0);
}

use std::pin::Pin;

use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
fn boxed(id: u64) -> Pin<Box<dyn Future<Output = Option<u64>>>> {
    Box::pin(async move { Some(id) })
}

#[distributed_lock(key = "order:<id>")]
fn opaque(id: u64) -> impl Future<Output = Option<u64>> {
    async move { Some(id) }
}

fn main() {
    let _ = (boxed(1), opaque(1));
}

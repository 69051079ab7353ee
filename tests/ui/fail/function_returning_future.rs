use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
fn pay(id: u64) -> impl Future<Output = u64> {
    async move { id }
}

fn main() {}

use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>", or_else = None)]
async fn pay(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {}

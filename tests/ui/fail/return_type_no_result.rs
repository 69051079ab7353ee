use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
async fn count(id: u64) -> u64 {
    id
}

fn main() {}

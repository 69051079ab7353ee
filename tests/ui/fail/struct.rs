use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
struct Order {
    id: u64,
}

fn main() {}

use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
const fn pay(id: u64) -> u64 {
    id
}

fn main() {}

use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
async fn log(id: u64) {
    let _ = id;
}

fn main() {}

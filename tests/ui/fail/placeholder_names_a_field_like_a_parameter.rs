use distlock::{LockError, distributed_lock};

struct Config {
    id: u64,
}

static CONFIG: Config = Config { id: 9 };

#[distributed_lock(key = "order:{CONFIG.id}")]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}

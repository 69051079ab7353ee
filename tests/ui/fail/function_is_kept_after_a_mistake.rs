use distlock::{LockError, distributed_lock};

struct Shop;

impl Shop {
    #[distributed_lock(key = "order:<id>", ttl = "30")]
    async fn pay(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

// No error: `pay` is there.
async fn pay_twice() -> Result<u64, LockError> {
    Ok(Shop.pay(1).await? + Shop.pay(2).await?)
}

fn main() {
    let _ = pay_twice();
}

//! What is meant to be one lock for all arguments.

use distlock::{LockError, distributed_lock};

const PREFIX: &str = "nightly";

#[distributed_lock(key = "{PREFIX}:report", global)]
async fn report(_day: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "report")]
async fn without_parameters() -> Result<(), LockError> {
    Ok(())
}

struct Shop(u64);

impl Shop {
    #[distributed_lock(key = "shop:<self.0>")]
    async fn close(&self, _reason: &str) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    let shop = Shop(1);
    drop((report(1), without_parameters(), shop.close("")));
}

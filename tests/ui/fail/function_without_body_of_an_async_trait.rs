use async_trait::async_trait;
use distlock::{LockError, distributed_lock};

#[async_trait]
trait Repo {
    #[distributed_lock(key = "order:<id>")]
    async fn save(&self, id: u64) -> Result<(), LockError>;
}

fn main() {}

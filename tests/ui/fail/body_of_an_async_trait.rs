use async_trait::async_trait;
use distlock::{LockError, distributed_lock};

struct Pg;

#[async_trait]
trait Repo {
    async fn save(&self, id: u64) -> Result<u64, LockError>;
}

#[async_trait]
impl Repo for Pg {
    #[distributed_lock(key = "order:<id>", lease = lease)]
    async fn save(&self, id: u64) -> Result<u64, LockError> {
        lease.ensure_held()?;
        let shared = std::rc::Rc::new(id);
        std::future::ready(()).await;
        Ok(*shared)
    }
}

fn main() {}

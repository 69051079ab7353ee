#![deny(warnings)]
#![forbid(unsafe_code)]

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};

type Result<T = ()> = std::result::Result<T, LockError>;

pub struct Shop {
    pub id: u64,
    pub total: u64,
    pub locks: LockManager,
}

impl Shop {
    const KIND: &'static str = "shop";
    const TTL: Duration = Duration::from_secs(5);

    #[distributed_lock(key = "shop:<self.id>", ttl = Self::TTL, manager = self.locks)]
    pub async fn by_reference(&self) -> Result<u64> {
        Ok(self.total)
    }

    #[distributed_lock(key = "<Self::KIND>:<self.id>", lease = lease)]
    pub async fn by_mutable_reference(&mut self, by: u64) -> Result<&u64> {
        self.total += by;
        lease.ensure_held()?;
        Ok(&self.total)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub async fn by_value(self) -> Result<LockManager> {
        Ok(self.locks)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub async fn by_mutable_value(mut self) -> Result<Self> {
        self.total += 1;
        Ok(self)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub async fn by_arc(self: Arc<Self>) -> Result<u64> {
        Ok(self.total)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub async fn by_pin(self: Pin<&mut Self>) -> Result<u64> {
        Ok(self.total)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub async fn by_rc(self: Rc<Self>) -> Result<u64> {
        Ok(self.total)
    }

    #[distributed_lock(key = "{Self::KIND}:{id:04}:{kind:?}")]
    pub async fn without_self(id: u64, kind: &str) -> Result {
        Ok(())
    }

    #[distributed_lock(key = "shop")]
    pub async fn without_parameters(&self) -> Result {
        Ok(())
    }
}

trait Pay {
    const KIND: u8;

    fn id(&self) -> u64;

    #[distributed_lock(key = "pay:{Self::KIND}:{self.id()}")]
    async fn by_default(&self, amount: u64) -> Result<u64> {
        Ok(amount)
    }

    async fn in_impl(&self, amount: u64) -> Result<u64>;
}

impl Pay for Shop {
    const KIND: u8 = 1;

    fn id(&self) -> u64 {
        self.id
    }

    #[distributed_lock(key = "pay:{<Self as Pay>::KIND}:{self.id}")]
    async fn in_impl(&self, amount: u64) -> Result<u64> {
        Ok(amount)
    }
}

fn send<T: Send>(_: T) {}

fn main() {
    let shop = || Shop { id: 1, total: 2, locks: LockManager::in_memory() };
    let mut mine = shop();
    send(mine.by_reference());
    send(mine.by_mutable_reference(3));
    send(Pin::new(&mut mine).by_pin());
    send(Shop::without_self(1, ""));
    send(mine.without_parameters());
    send(mine.by_default(1));
    send(mine.in_impl(1));
    send(shop().by_value());
    send(shop().by_mutable_value());
    send(Arc::new(shop()).by_arc());
    let _ = Rc::new(shop()).by_rc();
}

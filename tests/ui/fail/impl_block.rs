use distlock::distributed_lock;

struct Shop;

#[distributed_lock(key = "order:<id>")]
impl Shop {
    async fn pay(&self, id: u64) -> u64 {
        id
    }
}

fn main() {}

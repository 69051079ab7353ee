use distlock::distributed_lock;

trait Pay {
    #[distributed_lock(key = "order:<id>")]
    async fn pay(&self, id: u64) -> u64;
}

fn main() {}

use distlock::distributed_lock;

#[distributed_lock(key = "order")]
trait Pay {
    fn pay(&self);
}

fn main() {}

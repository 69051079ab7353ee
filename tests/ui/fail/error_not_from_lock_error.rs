use distlock::distributed_lock;

#[distributed_lock(key = "order:<id>")]
async fn parse(id: u64) -> Result<u64, std::num::ParseIntError> {
    id.to_string().parse()
}

fn main() {}

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", or_else = Err(LockError::NotInstalled))]
async fn a_value(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", or_else = || Vec::new())]
async fn no_argument(id: u64) -> Vec<u64> {
    vec![id]
}

#[distributed_lock(key = "order:<id>", or_else = |_, _| Vec::new())]
async fn two_arguments(id: u64) -> Vec<u64> {
    vec![id]
}

fn main() {}

use distlock::{LockError, distributed_lock};

mod id {
    pub fn key() -> &'static str {
        "fixed"
    }
}

struct K {
    id: u64,
}

#[distributed_lock(key = "order:{id}".to_owned())]
async fn plain_text(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = ["order:{id}", "<id>"].concat())]
async fn list_of_texts(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = concat!("app:", "order:{id}"))]
async fn text_of_texts(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = format!("order:{{id}}"))]
async fn doubled_braces(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = id::key())]
async fn path(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "{id::key()}")]
async fn path_in_a_template(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = K { id: 3 }.id)]
async fn field(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "{[1, 2].iter().map(|id| id + 1).sum::<i32>()}")]
async fn parameter_of_a_closure(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = { let id = 3; format!("order:{id}") })]
async fn other_variable(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}

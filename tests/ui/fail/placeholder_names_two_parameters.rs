use distlock::{LockError, distributed_lock};

macro_rules! with_id {
    ($id:ident) => {
        #[distributed_lock(key = "order:<id>")]
        async fn pay($id: u64, id: u64) -> Result<u64, LockError> {
            Ok(id + $id)
        }
    };
}

with_id!(id);

fn main() {
    let _ = pay(1, 2);
}

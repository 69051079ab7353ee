#![deny(warnings)]
#![forbid(unsafe_code)]

use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
    lines: Vec<u8>,
}

impl Order {
    fn first<T: From<u8>>(&self) -> T {
        T::from(self.lines[0])
    }
}

#[distributed_lock(key = "<<order>>{{<order.id>}}/{order.lines[0] as u32 + 1:04}/<order.first::<u64>()>/{order.id > 1}")]
async fn expressions(order: &Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{match kind { 0 => \"none\", _ => \"some\" }}-{list.iter().max().map_or(0, |max| *max)}")]
async fn blocks(kind: u8, list: &[u8]) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = r#"raw:{name:?}:{name:>10}"#)]
async fn formats(name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "moved:<order.id>")]
async fn moved_in_the_body(order: Order) -> Result<Vec<u8>, LockError> {
    Ok(order.lines)
}

fn main() {
    let order = Order { id: 1, lines: vec![1] };
    let _ = expressions(&order);
    let _ = blocks(1, &[]);
    let _ = formats("");
    let _ = moved_in_the_body(order);
}

#![deny(warnings)]
#![forbid(unsafe_code)]

use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
    lines: Vec<u8>,
}

impl Order {
    fn r#gen(&self) -> u64 {
        self.id
    }

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

/// What clippy would have to say of these, it would write over the template.
#[distributed_lock(
    key = "{id as u64}/{(id)}/{id.clone()}/{*&id}/{id + 0}/{list.len() == 0}/{flag == true}/{if flag { true } else { false }}"
)]
async fn operators(id: u64, list: &[u8], flag: bool) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(
    key = "{name.to_string()}/{&name[..]}/{String::from(name.clone())}/{name.chars().nth(0).unwrap_or('-')}/{order.r#gen()}"
)]
async fn calls(name: String, order: Order) -> Result<(), LockError> {
    Ok(())
}

/// In the edition of the attribute, the method's name is a keyword.
#[distributed_lock(key = "{order.gen()}/{order.lines.iter().map(|line| line.clone()).collect::<Vec<_>>().len() as u64 as u64}")]
async fn closures(order: &Order) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    let order = Order { id: 1, lines: vec![1] };
    let _ = expressions(&order);
    let _ = (operators(1, &[], true), closures(&order));
    let _ = calls(String::new(), Order { id: 1, lines: Vec::new() });
    let _ = blocks(1, &[]);
    let _ = formats("");
    let _ = moved_in_the_body(order);
}

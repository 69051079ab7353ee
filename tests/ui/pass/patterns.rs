#![deny(warnings)]
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard};

use distlock::{LockError, distributed_lock};

type Result<T = ()> = std::result::Result<T, LockError>;

struct Path<T>(T);

struct Transfer {
    from: u64,
    to: u64,
    note: String,
}

struct Marker;

const fn shard(id: u64) -> u64 {
    id % 16
}

#[distributed_lock(key = "account:<from>:{shard(to)}")]
async fn bindings_in_the_key(Path((from, to)): Path<(u64, u64)>) -> Result<u64> {
    Ok(from + to)
}

#[distributed_lock(key = "account:{from + 1}:<to>")]
async fn bindings_of_two(Path(from): Path<u64>, Transfer { to, mut note, .. }: Transfer) -> Result<String> {
    note.push_str(&from.to_string());
    Ok(note)
}

#[distributed_lock(key = format!("account:{from}"))]
async fn bindings_in_an_expression(Transfer { from, to: _to, ref note }: Transfer) -> Result<usize> {
    Ok(note.len())
}

#[distributed_lock(key = "account:<from>:<first>")]
async fn bindings_by_reference(Transfer { from, .. }: &Transfer, [first, ..]: &[u8; 2], &n: &u64) -> Result<u64> {
    Ok(n)
}

#[distributed_lock(key = "account:<id>")]
async fn bindings_outside_of_the_key(id: u64, pair @ (a, _): (u8, u8), Marker: Marker) -> Result<u8> {
    Ok(a + pair.1)
}

#[distributed_lock(key = "account:<ID>")]
#[allow(non_snake_case)]
async fn in_capitals(ID: u64) -> Result {
    Ok(())
}

#[distributed_lock(key = "account:<id>")]
async fn expected(id: u64, #[expect(unused_variables)] (x, y): (u8, u8)) -> Result {
    Ok(())
}

#[distributed_lock(key = "account:{format!(\"{id:>4}\")}:{from}")]
async fn captured_in_a_format(id: u64, (from, _): (u64, u64)) -> Result {
    Ok(())
}

#[distributed_lock(key = "account:<id>")]
async fn unnamed(id: u64, _: String, _unused: String) -> Result {
    Ok(())
}

/// To drop it at once would be a mistake, of which clippy speaks.
#[distributed_lock(key = "account:<id>")]
async fn unnamed_guard(id: u64, _: MutexGuard<'_, u64>, _guard: MutexGuard<'_, u64>) -> Result {
    Ok(())
}

#[distributed_lock(key = "account:<id>")]
async fn mutable(mut id: u64, mut list: Vec<u64>) -> Result<Vec<u64>> {
    id += 1;
    list.push(id);
    Ok(list)
}

#[distributed_lock(key = "account:<r#type>")]
async fn r#raw(r#type: u64, r#match: u64) -> Result<u64> {
    Ok(r#match)
}

#[distributed_lock(key = "account:<id>")]
async fn attributes(
    #[cfg(any())] absent: Missing,
    #[cfg(not(any()))] id: u64,
    #[allow(unused_variables)] allowed: u64,
    #[expect(unused_variables)] expected: u64,
) -> Result {
    Ok(())
}

enum Side {
    Left(u64),
    Right(u64),
}

mod settings {
    pub struct Limit {
        pub r#type: u64,
        pub size: u64,
    }
}

#[distributed_lock(key = "side:<id>:<r#type>:{a + b}")]
async fn alternatives(
    (Side::Left(id) | Side::Right(id)): Side,
    settings::Limit { r#type, size: ref limit }: settings::Limit,
    ([a, .., b], ()): ([u64; 3], ()),
    (mut list, ref mut count): (Vec<u64>, u64),
) -> Result<u64> {
    list.push(*limit);
    *count += 1;
    Ok(id + *count)
}

macro_rules! pair {
    ($first:ident, $second:ident) => {
        ($first, $second)
    };
}

#[distributed_lock(key = "made:<id>")]
async fn made_by_a_macro(id: u64, pair!(a, b): (u64, u64)) -> Result<u64> {
    Ok(a + b)
}

fn main() {
    let _ = (expected(1, (2, 3)), captured_in_a_format(1, (2, 3)));
    let _ = in_capitals(1);
    let limit = settings::Limit { r#type: 1, size: 2 };
    let _ = (Side::Right(1), alternatives(Side::Left(1), limit, ([1, 2, 3], ()), (Vec::new(), 1)));
    let _ = made_by_a_macro(1, (2, 3));
    let transfer = || Transfer { from: 1, to: 2, note: String::new() };
    let _ = bindings_in_the_key(Path((1, 2)));
    let _ = bindings_of_two(Path(1), transfer());
    let _ = bindings_in_an_expression(transfer());
    let _ = bindings_by_reference(&transfer(), &[1, 2], &1);
    let _ = bindings_outside_of_the_key(1, (1, 2), Marker);
    let _ = unnamed(1, String::new(), String::new());
    let (mutex, other) = (Mutex::new(1), Mutex::new(2));
    if let (Ok(guard), Ok(other)) = (mutex.lock(), other.lock()) {
        drop(unnamed_guard(1, guard, other));
    }
    let _ = mutable(1, Vec::new());
    let _ = r#raw(1, 2);
    let _ = attributes(1, 2, 3);
}

//! The future: how large it is, when it is `Send`, and where its panics are.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};

use crate::block_on;

async fn plain_body<const N: usize>() -> Result<u8, LockError> {
    let bytes = std::hint::black_box([1; N]);
    std::future::ready(()).await;
    Ok(bytes.iter().copied().fold(0, u8::wrapping_add))
}

#[distributed_lock(key = "sized")]
async fn body<const N: usize>() -> Result<u8, LockError> {
    let bytes = std::hint::black_box([1; N]);
    std::future::ready(()).await;
    Ok(bytes.iter().copied().fold(0, u8::wrapping_add))
}

#[distributed_lock(key = "sized", or_else = Err)]
async fn body_with_or_else<const N: usize>() -> Result<u8, LockError> {
    let bytes = std::hint::black_box([1; N]);
    std::future::ready(()).await;
    Ok(bytes.iter().copied().fold(0, u8::wrapping_add))
}

#[test]
fn a_future_grows_by_the_same_whatever_its_body_holds() {
    let growth = |plain: usize, locked: usize| locked.checked_sub(plain).unwrap();
    let small = growth(size_of_val(&plain_body::<100>()), size_of_val(&body_with_or_else::<100>()));
    let large = growth(size_of_val(&plain_body::<10_000>()), size_of_val(&body_with_or_else::<10_000>()));
    assert!(large.abs_diff(small) < 16, "with `or_else`, it grows by {small} and by {large} bytes");
    let small = growth(size_of_val(&plain_body::<100>()), size_of_val(&body::<100>()));
    let large = growth(size_of_val(&plain_body::<10_000>()), size_of_val(&body::<10_000>()));
    // All but the padding after a body.
    assert!(large.abs_diff(small) < 16, "it grows by {small} and by {large} bytes");
}

/// Ambiguous for what is `Send`, and so it compiles only for what is not.
trait NotSend<A> {
    fn is_not_send(&self) {}
}

impl<T: ?Sized> NotSend<()> for T {}

impl<T: ?Sized + Send> NotSend<u8> for T {}

fn is_send<T: Send>(_: &T) {}

#[distributed_lock(key = "sent", global)]
async fn sent(argument: Cell<u8>, _: PhantomData<Cell<u8>>) -> Result<u8, LockError> {
    std::future::ready(()).await;
    Ok(argument.get())
}

#[distributed_lock(key = format!("{}", Rc::new(id)))]
async fn key_with_a_temporary(id: u8) -> Result<u8, LockError> {
    std::future::ready(()).await;
    Ok(id)
}

async fn next(id: u8) -> u8 {
    std::future::ready(id).await
}

#[distributed_lock(key = "awaits:{next(id).await}:<id>:{next(id).await + 1}", retry = u32::from(next(id).await))]
async fn awaits_in_its_arguments(id: u8) -> Result<u8, LockError> {
    Ok(id)
}

#[distributed_lock(key = "awaits:{first}:{next(*last).await}", max_hold = Duration::from_secs(next(*last).await.into()))]
async fn awaits_in_view_of_a_pattern((first, ref last): (u8, u8)) -> Result<u8, LockError> {
    Ok(first + last)
}

#[distributed_lock(key = "kept:<id>")]
async fn not_sent_for_its_body(id: u8) -> Result<u8, LockError> {
    let shared = Rc::new(id);
    std::future::ready(()).await;
    Ok(*shared)
}

#[distributed_lock(key = "kept:<id>")]
async fn not_sent_for_its_argument(id: Rc<u8>) -> Result<u8, LockError> {
    std::future::ready(()).await;
    Ok(*id)
}

#[distributed_lock(key = "kept", global)]
async fn sent_if_its_argument_is<T>(value: T) -> Result<(), LockError> {
    std::future::ready(()).await;
    drop(value);
    Ok(())
}

#[test]
fn a_future_is_send_when_the_plain_one_is() {
    is_send(&sent(Cell::new(1), PhantomData));
    is_send(&key_with_a_temporary(1));
    is_send(&sent_if_its_argument_is(1));
    is_send(&awaits_in_its_arguments(1));
    is_send(&awaits_in_view_of_a_pattern((1, 2)));
    not_sent_for_its_body(1).is_not_send();
    not_sent_for_its_argument(Rc::new(1)).is_not_send();
    sent_if_its_argument_is(Rc::new(1)).is_not_send();
    // And they run where nothing needs to be sent.
    block_on(LockManager::in_memory().scope(async {
        assert_eq!(not_sent_for_its_body(1).await.unwrap(), 1);
        assert_eq!(not_sent_for_its_argument(Rc::new(2)).await.unwrap(), 2);
    }));
}

fn is_unwind_safe<T: UnwindSafe>(_: &T) {}

#[distributed_lock(key = "unwound:<id>")]
fn unwound(id: u8) -> impl Future<Output = Result<u8, LockError>> {
    async move { Ok(id) }
}

#[test]
fn a_future_is_unwind_safe_when_the_plain_one_is() {
    is_unwind_safe(&sent_if_its_argument_is(1));
    is_unwind_safe(&unwound(1));
}

#[distributed_lock(key = "steps:<count>", lease = lease)]
fn steps(count: u8) -> impl Future<Output = Result<usize, LockError>> {
    let steps: Vec<_> = (0..count).map(|_| async { lease.ensure_held() }).collect();
    async move {
        let done = steps.len();
        for step in steps {
            step.await?;
        }
        lease.ensure_held().map(|()| done)
    }
}

#[test]
fn every_future_that_a_loop_makes_has_the_lease() {
    let held = block_on(LockManager::in_memory().scope(async { steps(3).await }));
    assert_eq!(held.unwrap(), 3);
}

struct Place(u32, &'static str, &'static str);

#[distributed_lock(key = "place")]
async fn place() -> Result<Place, LockError> {
    Ok(Place(line!(), file!(), include_str!("cases/included.txt")))
}

#[distributed_lock(key = "panic")]
async fn panics() -> Result<u32, LockError> {
    panic!("at line {}", line!());
}

#[track_caller]
fn caller() -> u32 {
    panic::Location::caller().line()
}

#[distributed_lock(key = "caller")]
async fn calls() -> Result<(u32, u32), LockError> {
    Ok((caller(), line!()))
}

#[track_caller]
#[distributed_lock(key = "begun:<id>")]
fn begun(id: u32) -> impl Future<Output = Result<(u32, u32), LockError>> {
    let line = caller();
    async move { Ok((id, line)) }
}

#[test]
fn places_are_those_of_the_code_as_written() {
    block_on(LockManager::in_memory().scope(async {
        let Place(line, file, included) = place().await.unwrap();
        assert_eq!(file, file!());
        assert_eq!(included, "what stands in the file\n");
        let code = include_str!("futures.rs").lines().nth(line as usize - 1).unwrap();
        assert!(code.contains("Ok(Place(line!()"), "line {line} is `{code}`");
        let (seen, written) = calls().await.unwrap();
        assert_eq!(seen, written);
        let (written, seen) = begun(line!()).await.unwrap();
        assert_eq!(seen, written, "`#[track_caller]` tells who called a function that returns its future");
    }));
}

#[test]
fn a_panic_is_where_it_was_written() {
    let seen = Arc::new(Mutex::new(String::new()));
    let hook = panic::take_hook();
    let writes = seen.clone();
    panic::set_hook(Box::new(move |info| {
        let line = info.location().unwrap().line();
        *writes.lock().unwrap() = format!("{} {line}", info.payload_as_str().unwrap_or_default());
    }));
    let call = AssertUnwindSafe(|| block_on(LockManager::in_memory().scope(panics())));
    let ended = panic::catch_unwind(call);
    panic::set_hook(hook);
    assert!(ended.is_err());
    let seen = seen.lock().unwrap().clone();
    let (said, located) = seen.strip_prefix("at line ").and_then(|seen| seen.split_once(' ')).unwrap();
    assert_eq!(said, located);
}

/// A signature with everything that is to be kept. That it is kept is seen by the lints' test and by the compiler.
mod kept {
    use super::{LockError, distributed_lock};

    #[distributed_lock(key = "kept")]
    pub(super) async fn visible() -> Result<(), LockError> {
        Ok(())
    }
}

#[test]
fn visibility_is_kept() {
    drop(kept::visible());
}

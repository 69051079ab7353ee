#![deny(warnings)]
#![forbid(unsafe_code)]

use std::fmt::Display;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "<name>:<item>:{N}")]
async fn parameters<'a, T, const N: usize>(name: &'a str, item: &T, items: [u8; N]) -> Result<&'a str, LockError>
where
    T: Display + ?Sized,
{
    Ok(&name[..items.len().min(name.len())])
}

#[distributed_lock(key = "<id>")]
async fn impl_argument(id: impl Display, each: impl for<'a> Fn(&'a str) -> &'a str) -> Result<usize, LockError> {
    Ok(each(&id.to_string()).len())
}

#[distributed_lock(key = "<id>")]
async fn impl_return(id: u8) -> Result<impl Iterator<Item = u8> + use<>, LockError> {
    if id == 0 {
        return Ok(0..id);
    }
    Ok(1..id)
}

#[distributed_lock(key = "<id>")]
async fn impl_return_nested(id: u8) -> Result<(u8, Option<impl Display + use<>>), LockError> {
    Ok((id, Some(id)))
}

#[distributed_lock(key = "<id>", or_else = |error| error.to_string())]
async fn impl_return_whole(id: u8) -> impl Display + use<> {
    id.to_string()
}

struct Cell<'a, T>(&'a mut T);

impl<T: Display> Cell<'_, T> {
    #[distributed_lock(key = "cell:<self.0>")]
    async fn borrow(&mut self) -> Result<&mut T, LockError> {
        Ok(self.0)
    }
}

fn main() {
    let _ = parameters("a", "b", [1]);
    let _ = impl_argument(1, |text| text);
    let _ = impl_return(1);
    let _ = impl_return_nested(1);
    let _ = impl_return_whole(1);
    let _ = Cell(&mut 1).borrow();
}

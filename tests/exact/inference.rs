//! What the declared return type infers and coerces in a plain function, it does in an annotated one.
//!
//! Each function stands here twice, and the test is that both compile and return the same.

// The functions are as they are for the sake of the compiler's inference.
#![allow(clippy::pedantic, clippy::needless_return)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::num::ParseIntError;

use distlock::{LockError, LockManager, distributed_lock};

use crate::block_on;

#[derive(Debug)]
pub(crate) enum Failure {
    Lock,
    Parse,
}

impl From<LockError> for Failure {
    fn from(_: LockError) -> Failure {
        Failure::Lock
    }
}

impl From<ParseIntError> for Failure {
    fn from(_: ParseIntError) -> Failure {
        Failure::Parse
    }
}

trait Said {
    fn said(self) -> String;
}

impl<T: Debug, E: Debug> Said for Result<T, E> {
    fn said(self) -> String {
        format!("{self:?}")
    }
}

type Boxed = Result<Box<dyn Display + Send>, Box<dyn Error + Send + Sync>>;

/// The same functions in two modules, in one of them under the attribute.
macro_rules! twice {
    ($($(#[$attribute:meta])* async fn $name:ident($($parameters:tt)*) -> $return:ty $body:block)*) => {
        mod plain {
                        use super::*;
            $($(#[$attribute])* pub(super) async fn $name($($parameters)*) -> $return $body)*
        }

        mod locked {
                        use super::*;
            $($(#[$attribute])*
            #[distributed_lock(key = "inferred", global)]
            pub(super) async fn $name($($parameters)*) -> $return $body)*
        }
    };
}

twice! {
    async fn question_mark_converts(text: &str) -> Result<u64, Failure> {
        let n: u64 = text.parse()?;
        if n == 0 {
            return Ok(text.len() as u64);
        }
        Ok(n)
    }

    async fn early_return_of_a_trait_object(early: bool) -> Boxed {
        if early {
            return Ok(Box::new("early"));
        }
        if !early {
            return Err("late".into());
        }
        Err(Box::new(std::fmt::Error))
    }

    async fn closures_of_different_types(first: bool) -> Result<Box<dyn Fn(u8) -> u8 + Send>, Failure> {
        match first {
            true => return Ok(Box::new(|n| n + 1)),
            false => Ok(Box::new(move |n| n + u8::from(first))),
        }
    }

    async fn functions_become_pointers(first: bool) -> Result<fn(u8) -> u8, Failure> {
        fn one(n: u8) -> u8 {
            n
        }
        if first {
            return Ok(one);
        }
        Ok(|n| n + 2)
    }

    async fn arrays_become_slices(first: bool) -> Result<&'static [u8], Failure> {
        if first {
            return Ok(&[1, 2]);
        }
        Ok(&[])
    }

    async fn into(text: &str) -> Result<String, Failure> {
        if text.is_empty() {
            return Ok("nothing".into());
        }
        Ok(text.into())
    }

    async fn collect(text: &str) -> Result<BTreeMap<char, usize>, Failure> {
        Ok(text.char_indices().map(|(at, letter)| (letter, at)).collect())
    }

    async fn collect_results(text: &str) -> Result<Vec<u8>, Failure> {
        Ok(text.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }

    async fn default(early: bool) -> Result<Vec<u8>, Failure> {
        if early {
            return Ok(Default::default());
        }
        Ok(Default::default())
    }

    async fn integers(early: bool) -> Result<Option<i8>, Failure> {
        if early {
            return Ok(None);
        }
        Ok(Some(-1))
    }

    async fn blocks_of_their_own(text: &str) -> Result<u64, Failure> {
        let inner = async { return text.parse::<u64>() };
        let closure = || -> Option<u64> { return Some(text.chars().next()?.to_digit(10)?.into()) };
        let n = 'found: {
            if let Some(n) = closure() {
                break 'found n;
            }
            0
        };
        Ok(inner.await? + n)
    }

    async fn ends_in_a_loop(mut n: u64) -> Result<u64, Failure> {
        loop {
            n += 1;
            if n > 5 {
                return Ok(n);
            }
        }
    }

    async fn never_comes_back(n: Option<u64>) -> Result<u64, Failure> {
        let Some(n) = n else { return Err(Failure::Parse) };
        if n == 7 {
            std::process::exit(i32::from(false));
        }
        match n {
            1 => Ok(1),
            _ => unreachable!("{n}"),
        }
    }

    async fn impl_trait(n: u8) -> Result<impl Iterator<Item = u8> + Debug + use<>, Failure> {
        if n == 0 {
            return Ok(0..1);
        }
        Ok(n..n + 2)
    }

    async fn borrows(text: &str, list: &mut [u8]) -> Result<Option<&'static str>, Failure> {
        list.iter_mut().for_each(|n| *n += 1);
        Ok((text.len() == list.len()).then_some("same"))
    }
}

macro_rules! same {
    ($name:ident($($argument:expr),*) $($map:tt)*) => {
        let plain = plain::$name($($argument),*).await $($map)*;
        let locked = locked::$name($($argument),*).await $($map)*;
        assert_eq!(plain.said(), locked.said(), stringify!($name($($argument),*)));
    };
}

#[test]
fn functions_infer_and_return_what_plain_ones_do() {
    block_on(LockManager::in_memory().scope(async {
        for text in ["0", "12", "x"] {
            same!(question_mark_converts(text));
            same!(blocks_of_their_own(text));
            same!(collect_results(text));
        }
        for flag in [true, false] {
            same!(early_return_of_a_trait_object(flag).map(|shown| shown.to_string()));
            same!(closures_of_different_types(flag).map(|function| function(1)));
            same!(functions_become_pointers(flag).map(|function| function(1)));
            same!(arrays_become_slices(flag));
            same!(default(flag));
            same!(integers(flag));
        }
        same!(into(""));
        same!(into("a"));
        same!(collect("abca"));
        same!(ends_in_a_loop(1));
        same!(never_comes_back(None));
        same!(never_comes_back(Some(1)));
        same!(impl_trait(0));
        same!(impl_trait(3));
        same!(borrows("ab", &mut [1, 2]));
    }));
}

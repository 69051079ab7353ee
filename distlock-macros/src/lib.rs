//! The attribute of `distlock`.

mod args;
mod check;
mod duration;
mod erase;
mod expand;
mod function;
mod key;
mod mentions;
mod mistakes;
mod options;
mod params;
mod suggest;
mod template;

use proc_macro2::TokenStream;

use crate::args::Args;
use crate::function::Function;

/// Locks.
#[proc_macro_attribute]
pub fn distributed_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    attribute(args.into(), item.into()).into()
}

/// What was written stays, also if it can't be locked, so that one mistake is one error.
fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    lock(args, item.clone()).unwrap_or_else(|error| {
        let mut tokens = error.into_compile_error();
        tokens.extend(item);
        tokens
    })
}

fn lock(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let function: Function = syn::parse2(item)?;
    let spec = check::check(Args::read(args), &function)?;
    Ok(expand::expand(function, &spec))
}

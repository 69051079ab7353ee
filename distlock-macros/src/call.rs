//! Writes what happens before the body runs: the key, the options and the call that has them.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Path};

use crate::check::Spec;
use crate::function::Function;
use crate::key::{Key, Keys};
use crate::options::Value;
use crate::params::{self, Param};
use crate::returning::Shape;
use crate::template::{Piece, Placeholder};
use crate::words::Word;

// Input:
//     key = "order:<id>", retry = self.retry
//
// Output:
//     let __distlock_key = KEY;
//     let __distlock_options = OPTIONS;
//     let __distlock_call = Call::new(manager(), __distlock_key, __distlock_options, concat!(module_path!(), "::", "pay"));
//
/// All that is known before the body runs. Nothing of the parameters is moved for it.
///
/// What an expression borrows lives until its statement ends, and would be kept while the next one awaits. So each has a
/// statement of its own.
pub(crate) fn bind(function: &Function, params: &[Param], spec: &Spec, mutable: bool) -> TokenStream {
    let Spec { krate, .. } = spec;
    let mixed = Span::mixed_site();
    let name = function.name().to_string();
    let (new, manager) = match function.shape {
        Shape::Async => ("new", manager(spec)),
        Shape::Opaque | Shape::Boxed => ("later", later_manager(spec)),
    };
    let new = Ident::new(new, mixed);
    let key = keys(spec);
    let (late_options, options) = options(spec);
    let call = quote_spanned! {mixed=>
        #krate::__private::Call::#new(
            #manager,
            __distlock_key,
            #options,
            #krate::__private::concat!(#krate::__private::module_path!(), "::", #name),
        )
    };
    let before = quote_spanned!(mixed=> #key #late_options);
    let mentions = spec.mentions();
    let mutable = mutable.then(|| quote_spanned!(mixed=> mut));
    if !params::are_in_view(params, &mentions) {
        return quote_spanned!(mixed=> #before let #mutable __distlock_call = #call;);
    }
    let call = params::in_view(quote_spanned!(mixed=> { #before #call }), params, &mentions);
    quote_spanned!(mixed=> let #mutable __distlock_call = #call;)
}

/// The path to what the runtime keeps for us, as if it stood in `place`: an error about a call starts where its path does.
pub(crate) fn private(krate: &Path, place: Span) -> TokenStream {
    let krate = krate.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    quote_spanned!(place=> #(#krate)*::__private)
}

fn manager(Spec { krate, manager, .. }: &Spec) -> TokenStream {
    match manager {
        None => quote_spanned!(Span::mixed_site()=> #krate::__private::manager()),
        Some(manager) => {
            let place = Span::mixed_site().located_at(manager.span());
            let private = private(krate, place);
            let manager = operand(manager, place);
            quote_spanned!(place=> #private::use_manager(&#manager))
        }
    }
}

/// The expression as what an operator is applied to.
fn operand(expr: &Expr, place: Span) -> TokenStream {
    match expr {
        Expr::Path(_) | Expr::Field(_) | Expr::MethodCall(_) | Expr::Call(_) | Expr::Macro(_) | Expr::Paren(_) => {
            expr.to_token_stream()
        }
        expr => quote_spanned!(place=> (#expr)),
    }
}

/// None, for the one in scope when the future is polled.
fn later_manager(spec: &Spec) -> TokenStream {
    let krate = &spec.krate;
    let given = spec.manager.as_ref().map(|_| manager(spec));
    let none = quote_spanned!(Span::mixed_site()=> #krate::__private::Option::None);
    given.map_or(none, |manager| quote_spanned!(Span::mixed_site()=> #krate::__private::Option::Some(#manager)))
}

// Input:
//     ["account:<from>", "account:<to>"]
//
// Output:
//     let __distlock_key = keys([
//         { let __distlock_key = KEY; __distlock_key },
//         { let __distlock_key = KEY; __distlock_key },
//     ]);
fn keys(Spec { krate, keys, .. }: &Spec) -> TokenStream {
    let mixed = Span::mixed_site();
    match keys {
        Keys::One(one) => key(krate, one),
        Keys::Listed(list) => {
            let list = list.iter().map(|one| key(krate, one));
            quote_spanned! {mixed=>
                let __distlock_key = #krate::__private::keys([#({ #list __distlock_key }),*]);
            }
        }
        Keys::Expression(expr) => {
            let place = mixed.located_at(expr.span());
            let private = private(krate, place);
            let keys = quote_spanned!(place=> #private::keys_of(#expr));
            quote_spanned!(mixed=> let __distlock_key = #keys;)
        }
    }
}

// Input:
//     "order:<order.id>/{shard:02}"
//
// Output:
//     let __distlock_key = KeyBuilder::new()
//         .literal("order:")
//         .value("order.id", format_args!("{}", order.id), '/')
//         .literal("/");
//     let __distlock_key = __distlock_key
//         .last_value("shard", format_args!("{:02}", shard))
//         .finish();
fn key(krate: &Path, key: &Key) -> TokenStream {
    let mixed = Span::mixed_site();
    match key {
        Key::Expression(expr) => {
            let place = mixed.located_at(expr.span());
            let private = private(krate, place);
            let expr = operand(expr, place);
            let key = quote_spanned!(place=> #private::key_of(&#expr));
            quote_spanned!(mixed=> let __distlock_key = #key;)
        }
        Key::Template(pieces) => {
            let mut statements = quote_spanned!(mixed=> let __distlock_key = #krate::__private::KeyBuilder::new());
            for (at, piece) in pieces.iter().enumerate() {
                let (before, after) = pieces.split_at(at);
                let is_value = |piece: &Piece| matches!(piece, Piece::Placeholder(_));
                if is_value(piece) && before.iter().any(is_value) {
                    statements.extend(quote_spanned!(mixed=> ; let __distlock_key = __distlock_key));
                }
                statements.extend(key_piece(krate, piece, after.get(1)));
            }
            quote_spanned!(mixed=> #statements.finish();)
        }
    }
}

fn key_piece(krate: &Path, piece: &Piece, next: Option<&Piece>) -> TokenStream {
    let mixed = Span::mixed_site();
    match piece {
        Piece::Literal(text) => quote_spanned!(mixed=> .literal(#text)),
        Piece::Placeholder(Placeholder { text, expr, format, .. }) => {
            let value = quote_spanned!(mixed=> #text, #krate::__private::format_args!(#format, #expr));
            if let Some(Piece::Literal(text)) = next {
                let next = text.chars().next();
                quote_spanned!(mixed=> .value(#value, #next))
            } else {
                quote_spanned!(mixed=> .last_value(#value))
            }
        }
    }
}

// Input:
//     ttl = "30s", retry = self.retry
//
// Output:
//     let __distlock_options = const { Options::new().ttl(Duration::from_millis(30000)) };
//     let __distlock_options = __distlock_options.retry(self.retry);
// and
//     __distlock_options
//
/// The statements that make the options, and the options. What is constant alone needs no statement.
fn options(Spec { krate, options, fencing_token, .. }: &Spec) -> (TokenStream, TokenStream) {
    let mixed = Span::mixed_site();
    let mut constant = TokenStream::new();
    let mut late = TokenStream::new();
    if fencing_token.is_some() {
        constant.extend(quote_spanned!(mixed=> .fencing_token(true)));
    }
    for (name, value) in options {
        let name = Ident::new(&name.to_string(), mixed.located_at(name.span()));
        let set = option_value(krate, value);
        let set = quote_spanned!(mixed=> .#name(#set));
        match value {
            Value::Expression(_) => {
                late.extend(quote_spanned!(mixed=> let __distlock_options = __distlock_options #set;));
            }
            _ => constant.extend(set),
        }
    }
    let constant = quote_spanned!(mixed=> const { #krate::__private::Options::new()#constant });
    if late.is_empty() {
        return (late, constant);
    }
    let statements = quote_spanned!(mixed=> let __distlock_options = #constant; #late);
    (statements, quote_spanned!(mixed=> __distlock_options))
}

fn option_value(krate: &Path, value: &Value) -> TokenStream {
    let mixed = Span::mixed_site();
    match value {
        Value::Millis(millis) => {
            quote_spanned!(mixed=> #krate::__private::Duration::from_millis(#millis))
        }
        Value::Count(count) => count.to_token_stream(),
        Value::Flag(flag) => flag.to_token_stream(),
        Value::Delays(first, longest) => {
            quote_spanned!(mixed=> #krate::__private::Backoff::from_millis(#first, #longest))
        }
        Value::Word(word) => {
            let variant = variant(*word);
            quote_spanned!(mixed=> #krate::__private::#variant)
        }
        Value::Expression(expr) => expr.to_token_stream(),
    }
}

fn variant(word: Word) -> TokenStream {
    let mixed = Span::mixed_site();
    match word {
        Word::Cancel => quote_spanned!(mixed=> OnLost::Cancel),
        Word::Finish => quote_spanned!(mixed=> OnLost::Finish),
        Word::Exclusive => quote_spanned!(mixed=> Mode::Exclusive),
        Word::Read => quote_spanned!(mixed=> Mode::Read),
        Word::Write => quote_spanned!(mixed=> Mode::Write),
    }
}

//! Writes the function that locks: one call of the runtime, with the body as a future. Nothing can fail here.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Path, ReturnType, Type};

use crate::call::{self, private};
use crate::check::Spec;
use crate::erase;
use crate::function::Function;
use crate::mentions::Mentions;
use crate::params::{self, Param};
use crate::returning::{self, Shape};

// Input:
//     #[distributed_lock(key = "order:<id>", ttl = "30s", lease = lease)]
//     async fn pay(id: u64) -> Result<Receipt, OrderError> { BODY }
//
// Output, with `::distlock::__private::` before every name that is not the user's:
//     async fn pay(id: u64) -> Result<Receipt, OrderError> {
//         let __distlock_key = KEY;
//         let __distlock_call = Call::new(manager(), __distlock_key, OPTIONS, concat!(module_path!(), "::", "pay"));
//         let lease = __distlock_call.lease();
//         run(
//             __distlock_call,
//             async move {
//                 if let Option::Some(__distlock_return) = Option::None::<Result<Receipt, OrderError>> {
//                     return __distlock_return;
//                 }
//                 let id = id;
//                 let _ = &id;
//                 { ; BODY }
//             },
//             by_outcome(),
//         )
//         .await
//     }
//
// With further specs, which are those of attributes further down, BODY is again such a call. A function that returns its
// future does not await: see `begin`. What we bind has names that nobody has, since a pattern may also be a unit struct or a
// constant of that name.
pub(crate) fn expand(mut function: Function, spec: &Spec, lower: &[Spec]) -> TokenStream {
    let params = params::name_all(&mut function.sig);
    let seen = params::seen(&params, &function.hidden);
    let output = output(&function);
    let mut leases = Vec::new();
    for spec in [spec].into_iter().chain(lower) {
        leases.push(bind_leases(&mut function, spec));
    }
    let inner = match function.shape {
        Shape::Async => block(&function, &params, spec, lower),
        Shape::Opaque | Shape::Boxed => begin(&function, &params, spec, lower, output),
    };
    let nested = lower.iter().zip(leases.iter().skip(1)).rev().fold(inner, |inner, (spec, leases)| {
        let (call, run) = locked(&function, &seen, spec, leases, &inner);
        let head = (function.shape == Shape::Async).then(|| quote!(async move));
        let run = last(&function, run);
        quote_spanned!(output=> #head { #call #run })
    });
    let (call, run) = locked(&function, &seen, spec, leases.first().map_or(&[], Vec::as_slice), &nested);
    let mut body = quote!(#call #run);
    if function.shape == Shape::Boxed {
        let private = private(&spec.krate, output);
        body = quote_spanned!(output=> #private::Box::pin({ #body }));
    }
    let body = braces(&function, body);
    let Function { attrs, vis, sig, .. } = &function;
    quote_spanned!(Span::mixed_site()=> #(#attrs)* #vis #sig #body)
}

/// The user's braces around code of ours. Where something starts and ends decides whose it is, and so which lints
/// look into it; what stands between them does not count.
fn braces(function: &Function, code: TokenStream) -> TokenStream {
    let mut block = TokenStream::new();
    function.brace.surround(&mut block, |tokens| tokens.extend(code));
    block
}

/// Names where the body gets the lease and the fencing token from, and binds them in the body if they are not bound around
/// that.
fn bind_leases(function: &mut Function, spec: &Spec) -> Vec<Ident> {
    let (lease, token) = (spec.lease.as_ref(), spec.fencing_token.as_ref());
    if function.shape == Shape::Async {
        return lease.cloned().into_iter().chain(token.map(token_source)).collect();
    }
    let mut sources = Vec::new();
    for (name, is_token) in lease.into_iter().map(|name| (name, false)).chain(token.map(|name| (name, true))) {
        let get = |source: &Ident| {
            let private = private(&spec.krate, Span::mixed_site());
            let get = quote_spanned!(Span::mixed_site()=> #source.get());
            if is_token { quote_spanned!(Span::mixed_site()=> #private::fencing_token(#get)) } else { get }
        };
        let (body, more) = returning::bind_lease(std::mem::take(&mut function.body), name, &get);
        function.body = body;
        sources.extend(more);
    }
    sources
}

/// What the fencing token is read from in an async function's body. It has no name of the user's, which may say that it is
/// not used.
fn token_source(token: &Ident) -> Ident {
    format_ident!("__distlock_{}", token.unraw(), span = Span::mixed_site())
}

/// The statements that make the call, and the future `inner` run under it.
fn locked(
    function: &Function,
    seen: &[Param],
    spec: &Spec,
    leases: &[Ident],
    inner: &TokenStream,
) -> (TokenStream, TokenStream) {
    let mixed = Span::mixed_site();
    let is_async = function.shape == Shape::Async;
    let call = call::bind(function, seen, spec, !is_async && !leases.is_empty());
    let lease = Ident::new(if is_async { "lease" } else { "later_lease" }, mixed);
    let bind = quote_spanned!(mixed=> #call #(let #leases = __distlock_call.#lease();)*);
    let run = run(function, spec, inner);
    let output = output(function);
    let awaited = is_async.then(|| quote_spanned!(output=> .await));
    (bind, quote!(#run #awaited))
}

/// With `return`, the value of an async block whose value is a future: clippy says that such a block should have awaited
/// it (`async_yields_async`), but not so of a function, and looks for the value at the end.
fn last(function: &Function, value: TokenStream) -> TokenStream {
    if returning::yields_future(&function.sig) { quote_spanned!(Span::mixed_site()=> return #value;) } else { value }
}

fn run(function: &Function, spec: &Spec, inner: &TokenStream) -> TokenStream {
    let output = output(function);
    let private = private(&spec.krate, output);
    let Some(or_else) = &spec.or_else else {
        return quote_spanned!(output=> #private::run(__distlock_call, #inner, #private::by_outcome()));
    };
    let owning = returning::owning(or_else);
    let or_else = if function.shape == Shape::Async { or_else } else { &owning };
    // What the closure must satisfy is asked for where it stands.
    let place = Span::mixed_site().located_at(or_else.span());
    let asking = call::private(&spec.krate, place);
    let settled = quote_spanned!(place=> #asking::or_else(#inner, #or_else));
    quote_spanned!(output=> #private::run_or_else(__distlock_call, #settled))
}

/// Where the return type stands: the runtime asks something of it, and if that is not given, the error belongs there.
fn output(function: &Function) -> Span {
    let span = match (returning::output(&function.sig), &function.sig.output) {
        // Of several tokens, a span on stable is the first one's; the last name says more.
        (Some(Type::Path(ty)), _) => ty.path.segments.last().map_or(ty.span(), |last| last.ident.span()),
        (Some(ty), _) => ty.span(),
        (None, ReturnType::Type(_, ty)) => ty.span(),
        (None, ReturnType::Default) => function.sig.ident.span(),
    };
    Span::mixed_site().located_at(span)
}

/// The body as a future that owns the parameters and has the declared type.
///
/// The user's braces are kept around the user's code: their edition says when the last expression's temporaries are
/// dropped, which must be before the parameters are.
fn block(function: &Function, params: &[Param], spec: &Spec, lower: &[Spec]) -> TokenStream {
    let Function { sig, body, .. } = function;
    let moves = params::move_all(sig, params, &all_mentions(spec, lower));
    let declared = declared(&sig.output, &spec.krate);
    let tokens = [spec].into_iter().chain(lower).filter_map(|spec| {
        let (token, private) = (spec.fencing_token.as_ref()?, private(&spec.krate, Span::mixed_site()));
        let source = token_source(token);
        Some(quote_spanned!(Span::mixed_site()=> let #token = #private::fencing_token(#source);))
    });
    let block = braces(function, two_statements(body));
    // A `return` of what has returned would be unreachable.
    let ended = returning::yields_future(sig) && returning::never_ends(body);
    let body = if ended { quote_spanned!(Span::mixed_site()=> #block;) } else { last(function, block) };
    let start = sig.asyncness;
    // In braces of our own edition, which drops what is left of the body's last expression before the parameters, as
    // every edition does in the plain function.
    quote_spanned!(Span::mixed_site()=> #start move { #declared #(#tokens)* #moves #body })
}

/// An empty statement and the body: of a lone expression in braces the compiler would say that it needs none.
fn two_statements(body: &TokenStream) -> TokenStream {
    // Of the user's own `;` it has something to say as well, and would not see it next to ours.
    let starts_empty =
        matches!(body.clone().into_iter().next(), Some(TokenTree::Punct(punct)) if punct.as_char() == ';');
    let empty = (!starts_empty).then(|| quote_spanned!(Span::mixed_site()=> ;));
    quote!(#empty #body)
}

// Input:
//     fn pay(self: Arc<Self>, mut id: u64) -> Pin<Box<dyn Future<Output = Result<Receipt, OrderError>>>> { BODY }
//
// Output:
//     begin(move || -> Pin<Box<dyn Future<Output = Result<Receipt, OrderError>>>> {
//         let _ = &self;
//         let mut id = id;
//         { BODY }
//     })
//
/// The body of a function that returns its future. It runs when the function is called, as in the plain function, and is
/// a closure, since a `return` in it would get past the lock.
///
/// A closure has no caller for `#[track_caller]`. Where that is asked for, and the type of the future is not to be
/// coerced, a block does as well: a `return` of another type than our future's is an error of the compiler.
fn begin(function: &Function, params: &[Param], spec: &Spec, lower: &[Spec], place: Span) -> TokenStream {
    let Function { sig, body, .. } = function;
    let mentions = all_mentions(spec, lower);
    let moves = params::move_all(sig, params, &mentions);
    let body = returning::touch(sig, body.clone(), &mentions);
    let block = braces(function, two_statements(&body));
    let output = (function.shape == Shape::Boxed).then(|| {
        let mut output = sig.output.clone();
        if let ReturnType::Type(_, ty) = &mut output {
            erase::impl_traits(ty);
        }
        output
    });
    let private = private(&spec.krate, place);
    let tracked = function.attrs.iter().any(|attr| attr.path().is_ident("track_caller"));
    if tracked && function.shape == Shape::Opaque {
        return quote_spanned!(place=> { #moves #block });
    }
    quote_spanned! {place=>
        #private::begin(move || #output {
            #moves
            #block
        })
    }
}

/// A `return` that is never reached: without it the block would have the type of its first `return` or of its last
/// expression, and what the declared type coerces or infers would be lost.
fn declared(output: &ReturnType, krate: &Path) -> TokenStream {
    let ty = match output {
        ReturnType::Default => quote!(()),
        // No value of that type can be returned, and nothing is coerced to it.
        ReturnType::Type(_, ty) if matches!(**ty, Type::Never(_)) => return TokenStream::new(),
        ReturnType::Type(_, ty) => {
            let mut ty = ty.clone();
            erase::impl_traits(&mut ty);
            ty.into_token_stream()
        }
    };
    quote_spanned! {Span::mixed_site()=>
        if let #krate::__private::Option::Some(__distlock_return) = #krate::__private::Option::None::<#ty> {
            return __distlock_return;
        };
    }
}

/// The names that the arguments use.
fn all_mentions(spec: &Spec, lower: &[Spec]) -> Mentions {
    let mut mentions = spec.all_mentions();
    for spec in lower {
        mentions.extend(spec.all_mentions());
    }
    mentions
}

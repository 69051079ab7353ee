//! Writes the function that locks: one call of the runtime, with the body as a future. Nothing can fail here.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Path, ReturnType, Type};

use crate::check::Spec;
use crate::erase;
use crate::function::Function;
use crate::key::{Key, Keys};
use crate::mentions::Mentions;
use crate::options::Value;
use crate::params::{self, Param};
use crate::returning::{self, Shape};
use crate::template::{Piece, Placeholder};

// Input:
//     #[distributed_lock(key = "order:<id>", ttl = "30s", lease = lease)]
//     async fn pay(id: u64) -> Result<Receipt, OrderError> { BODY }
//
// Output, with `::distlock::__private::` before every name that is not the user's:
//     async fn pay(id: u64) -> Result<Receipt, OrderError> {
//         let call = Call::new(manager(), KEY, OPTIONS, concat!(module_path!(), "::", "pay"));
//         let lease = call.lease();
//         let body = async move {
//             if let Option::Some(ret) = Option::None::<Result<Receipt, OrderError>> { return ret; }
//             let id = id;
//             let _ = &id;
//             { ; BODY }
//         };
//         run(call, body, by_outcome()).await
//     }
//
// With further specs, which are those of attributes further down, BODY is again such a call. A function that returns its
// future does not await: see `begin`.
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
        let locked = locked(&function, &seen, spec, leases, &inner);
        let head = (function.shape == Shape::Async).then(|| quote!(async move));
        quote_spanned!(output=> #head { #locked })
    });
    let mut body = locked(&function, &seen, spec, leases.first().map_or(&[], Vec::as_slice), &nested);
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
        return lease.into_iter().chain(token).cloned().collect();
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

/// The call, and the future `inner` run under it.
fn locked(function: &Function, seen: &[Param], spec: &Spec, leases: &[Ident], inner: &TokenStream) -> TokenStream {
    let call = call(function, seen, spec);
    let output = output(function);
    let private = private(&spec.krate, output);
    let is_async = function.shape == Shape::Async;
    let run = if let Some(or_else) = &spec.or_else {
        let owning = returning::owning(or_else);
        let or_else = if is_async { or_else } else { &owning };
        quote_spanned!(output=> #private::run_or_else(call, #inner, #or_else))
    } else {
        quote_spanned!(output=> #private::run(call, #inner, #private::by_outcome()))
    };
    let mixed = Span::mixed_site();
    if is_async {
        let bind = quote_spanned!(mixed=> let call = #call; #(let #leases = call.lease();)*);
        quote_spanned!(output=> #bind #run.await)
    } else {
        let mutable = (!leases.is_empty()).then(|| quote!(mut));
        let bind = quote_spanned!(mixed=> let #mutable call = #call; #(let #leases = call.later_lease();)*);
        quote_spanned!(output=> #bind #run)
    }
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

/// The path to what the runtime keeps for us, as if it stood in `place`: an error about a call starts where its path does.
fn private(krate: &Path, place: Span) -> TokenStream {
    let krate = krate.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    quote_spanned!(place=> #(#krate)*::__private)
}

/// All that is known before the body runs. Nothing of the parameters is moved for it.
fn call(function: &Function, params: &[Param], spec: &Spec) -> TokenStream {
    let Spec { krate, .. } = spec;
    let name = function.name().to_string();
    let (new, manager) = match function.shape {
        Shape::Async => ("new", manager(spec)),
        Shape::Opaque | Shape::Boxed => ("later", later_manager(spec)),
    };
    let new = Ident::new(new, Span::mixed_site());
    let key = keys(spec);
    let options = options(spec);
    let call = quote_spanned! {Span::mixed_site()=>
        #krate::__private::Call::#new(
            #manager,
            #key,
            #options,
            #krate::__private::concat!(#krate::__private::module_path!(), "::", #name),
        )
    };
    params::in_view(call, params, &mentions([spec]))
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
        Some(quote_spanned!(Span::mixed_site()=> let #token = #private::fencing_token(#token);))
    });
    let body = braces(function, two_statements(body));
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
        if let #krate::__private::Option::Some(ret) = #krate::__private::Option::None::<#ty> {
            return ret;
        };
    }
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
//     keys([KeyBuilder::new()..finish(), KeyBuilder::new()..finish()])
fn keys(Spec { krate, keys, .. }: &Spec) -> TokenStream {
    let private = |place| private(krate, place);
    match keys {
        Keys::One(one) => key(krate, one),
        Keys::Listed(list) => {
            let (private, list) = (private(Span::mixed_site()), list.iter().map(|one| key(krate, one)));
            quote_spanned!(Span::mixed_site()=> #private::keys([#(#list),*]))
        }
        Keys::Expression(expr) => {
            let place = Span::mixed_site().located_at(expr.span());
            let private = private(place);
            quote_spanned!(place=> #private::keys_of(#expr))
        }
    }
}

// Input:
//     "order:<order.id>/{shard:02}"
//
// Output:
//     KeyBuilder::new()
//         .literal("order:")
//         .value("order.id", format_args!("{}", order.id), '/')
//         .literal("/")
//         .last_value("shard", format_args!("{:02}", shard))
//         .finish()
fn key(krate: &Path, key: &Key) -> TokenStream {
    match key {
        Key::Expression(expr) => {
            let place = Span::mixed_site().located_at(expr.span());
            let private = private(krate, place);
            let expr = operand(expr, place);
            quote_spanned!(place=> #private::key_of(&#expr))
        }
        Key::Template(pieces) => {
            let followers = pieces.iter().skip(1).map(Some).chain([None]);
            let pieces = pieces.iter().zip(followers);
            let pieces = pieces.map(|(piece, next)| key_piece(krate, piece, next));
            quote_spanned! {Span::mixed_site()=>
                #krate::__private::KeyBuilder::new()#(#pieces)*.finish()
            }
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
//     const { Options::new().ttl(Duration::from_millis(30000)) }.retry(self.retry)
fn options(Spec { krate, options, fencing_token, .. }: &Spec) -> TokenStream {
    let mut constant = TokenStream::new();
    let mut late = TokenStream::new();
    if fencing_token.is_some() {
        constant.extend(quote_spanned!(Span::mixed_site()=> .fencing_token(true)));
    }
    for (name, value) in options {
        let name = Ident::new(&name.to_string(), Span::mixed_site().located_at(name.span()));
        let part = match value {
            Value::Expression(_) => &mut late,
            _ => &mut constant,
        };
        let value = option_value(krate, value);
        part.extend(quote_spanned!(Span::mixed_site()=> .#name(#value)));
    }
    quote_spanned! {Span::mixed_site()=>
        const { #krate::__private::Options::new()#constant }#late
    }
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
        Value::Cancel => quote_spanned!(mixed=> #krate::__private::OnLost::Cancel),
        Value::Finish => quote_spanned!(mixed=> #krate::__private::OnLost::Finish),
        Value::Expression(expr) => expr.to_token_stream(),
    }
}

/// The names that the arguments use.
fn all_mentions(spec: &Spec, lower: &[Spec]) -> Mentions {
    let mut mentions = mentions([spec].into_iter().chain(lower));
    for spec in [spec].into_iter().chain(lower) {
        mentions.add(spec.or_else.to_token_stream());
    }
    mentions
}

/// The names that are used before the body runs.
fn mentions<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Mentions {
    let mut mentions = Mentions::default();
    for spec in specs {
        mentions.add(spec.manager.to_token_stream());
        if let Keys::Expression(keys) = &spec.keys {
            mentions.add(keys.to_token_stream());
        }
        for key in spec.keys.each() {
            match key {
                Key::Expression(expr) => mentions.add(expr.to_token_stream()),
                Key::Template(pieces) => add_placeholders(pieces, &mut mentions),
            }
        }
        for (_, value) in &spec.options {
            if let Value::Expression(expr) = value {
                mentions.add(expr.to_token_stream());
            }
        }
    }
    mentions
}

fn add_placeholders(pieces: &[Piece], mentions: &mut Mentions) {
    for piece in pieces {
        if let Piece::Placeholder(placeholder) = piece {
            mentions.add(placeholder.expr.to_token_stream());
        }
    }
}

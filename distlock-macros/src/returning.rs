//! Functions that return a future: by hand, or made so by `#[async_trait]`, `#[async_recursion]` and their like.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::{
    Expr, ExprCall, FnArg, GenericArgument, Local, Pat, Path, PathArguments, PathSegment, ReturnType, Signature, Stmt,
    Type, TypeParamBound, parse_quote_spanned,
};

use crate::mentions::Mentions;
use crate::params;

/// How a function makes its future.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `async fn`
    Async,
    /// `fn -> impl Future<Output = T>`
    Opaque,
    /// `fn -> Pin<Box<dyn Future<Output = T>>>`
    Boxed,
}

impl Shape {
    pub(crate) fn of(sig: &Signature) -> Option<Self> {
        if sig.asyncness.is_some() {
            return Some(Self::Async);
        }
        future(declared(&sig.output)?).map(|(shape, _)| shape)
    }
}

/// What the function's future resolves to, as far as its type says so.
pub(crate) fn output(sig: &Signature) -> Option<&Type> {
    let ty = declared(&sig.output)?;
    if sig.asyncness.is_some() { Some(ty) } else { future(ty).and_then(|(_, output)| output) }
}

fn declared(output: &ReturnType) -> Option<&Type> {
    match output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(ty),
    }
}

fn future(ty: &Type) -> Option<(Shape, Option<&Type>)> {
    match ty {
        Type::Group(group) => future(&group.elem),
        Type::Paren(paren) => future(&paren.elem),
        Type::ImplTrait(opaque) => Some((Shape::Opaque, future_bound(&opaque.bounds)?)),
        Type::Path(ty) => boxed(ty.path.segments.last()?).map(|output| (Shape::Boxed, output)),
        _ => None,
    }
}

/// `Pin<Box<..>>`, or the aliases of the crate `futures`.
fn boxed(last: &PathSegment) -> Option<Option<&Type>> {
    let inner = arguments(last).last();
    match last.ident.to_string().as_str() {
        "BoxFuture" | "LocalBoxFuture" => Some(inner),
        "Pin" => {
            let Type::Path(pointer) = inner? else { return None };
            let pointer = pointer.path.segments.last().filter(|last| last.ident == "Box")?;
            match arguments(pointer).next()? {
                Type::TraitObject(object) => future_bound(&object.bounds),
                Type::ImplTrait(opaque) => future_bound(&opaque.bounds),
                _ => None,
            }
        }
        _ => None,
    }
}

fn arguments(segment: &PathSegment) -> impl DoubleEndedIterator<Item = &Type> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// The output of a bound `Future<Output = T>`, if there is such a bound.
fn future_bound<'a>(bounds: impl IntoIterator<Item = &'a TypeParamBound>) -> Option<Option<&'a Type>> {
    bounds.into_iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => is_future(&bound.path),
        _ => None,
    })
}

fn is_future(path: &Path) -> Option<Option<&Type>> {
    let last = path.segments.last().filter(|last| last.ident == "Future")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Some(None) };
    let output = arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(&assoc.ty),
        _ => None,
    });
    Some(output)
}

// Input:
//     fn transfer(__arg0: Path<(u64, u64)>) -> Pin<Box<dyn Future<Output = Result<(), Error>>>> {
//         Box::pin(async move { let Path((from, to)) = { let __arg0 = __arg0; __arg0 }; .. })
//     }
//
// Output:
//     [(__arg0, Path((from, to)))]
//
/// The patterns that `#[async_trait]` took out of the signature: those that were written are what the key may name.
pub(crate) fn hidden_patterns(sig: &Signature, body: &TokenStream) -> Vec<(Ident, Pat)> {
    let names: Vec<&Ident> = names(sig).filter(|name| name.to_string().starts_with("__arg")).collect();
    let Some(call) = (!names.is_empty()).then(|| boxed_block(body)).flatten() else { return Vec::new() };
    let Some(Expr::Async(block)) = call.args.first() else { return Vec::new() };
    let hidden = names.into_iter().filter_map(|name| {
        let local = block.block.stmts.iter().find_map(|stmt| binding_of(stmt, name))?;
        Some((name.clone(), local.pat.clone()))
    });
    hidden.collect()
}

// Input:
//     Box::pin(async move { let id = id; let __ret: Result<(), Error> = { .. }; __ret })      with `id` in the key
//
// Output:
//     Box::pin(async move { let id = id; let _ = &id; let __ret: Result<(), Error> = { .. }; __ret })
//
/// Touches what the attribute's arguments mention, where `#[async_trait]` binds it once more: it is used.
pub(crate) fn touch(sig: &Signature, body: TokenStream, mentions: &Mentions) -> TokenStream {
    let Some(mut call) = boxed_block(&body) else { return body };
    let Some(Expr::Async(block)) = call.args.first_mut() else { return body };
    let mut stmts = Vec::new();
    for stmt in std::mem::take(&mut block.block.stmts) {
        let local = names(sig).find_map(|name| binding_of(&stmt, name));
        let touched = local.map(|local| params::bindings(&local.pat)).unwrap_or_default();
        stmts.push(stmt);
        for name in touched.iter().filter(|name| mentions.contains(&name.to_string())) {
            if !name.to_string().starts_with('_') {
                stmts.push(parse_quote_spanned!(Span::mixed_site()=> let _ = &#name;));
            }
        }
    }
    block.block.stmts = stmts;
    call.into_token_stream()
}

/// The parameters that are names.
fn names(sig: &Signature) -> impl Iterator<Item = &Ident> {
    sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pat) => Some(&pat.ident),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    })
}

/// `Box::pin(async move { .. })`, if that is all of the body.
fn boxed_block(body: &TokenStream) -> Option<ExprCall> {
    let Expr::Call(call) = syn::parse2(body.clone()).ok()? else { return None };
    matches!(call.args.first(), Some(Expr::Async(_))).then_some(call)
}

/// `let pattern = name;` or `let pattern = { let name = name; name };`
fn binding_of<'a>(stmt: &'a Stmt, name: &Ident) -> Option<&'a Local> {
    let Stmt::Local(local) = stmt else { return None };
    let last = match &*local.init.as_ref()?.expr {
        Expr::Block(block) => block.block.stmts.last().map(Stmt::to_token_stream),
        expr => Some(expr.to_token_stream()),
    };
    last.is_some_and(|last| last.to_string() == name.to_string()).then_some(local)
}

// Input:
//     self.count += 1; Box::pin(async move { lease.ensure_held() })      with `lease = lease`
//
// Output:
//     self.count += 1; Box::pin(async move { let lease = __lease0.get(); lease.ensure_held() })
//
/// Binds the lease in each async block that mentions it, and returns what the blocks get it from. The function is called
/// before there is a lease, and its async blocks run when there is one.
pub(crate) fn bind_lease(body: TokenStream, lease: &Ident) -> (TokenStream, Vec<Ident>) {
    let mut sources = Vec::new();
    (bind(body, lease, &mut sources), sources)
}

fn bind(tokens: TokenStream, lease: &Ident, sources: &mut Vec<Ident>) -> TokenStream {
    let mut bound: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let token = match token {
            TokenTree::Group(group) => {
                let inner = if is_async_block(&bound, &group) && mentions(&group, lease) {
                    bind_here(&group, lease, sources)
                } else {
                    bind(group.stream(), lease, sources)
                };
                let mut new = Group::new(group.delimiter(), inner);
                new.set_span(group.span());
                TokenTree::Group(new)
            }
            token => token,
        };
        bound.push(token);
    }
    bound.into_iter().collect()
}

/// Whether `async {..}` or `async move {..}` ends with this group.
fn is_async_block(before: &[TokenTree], group: &Group) -> bool {
    let is = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident == word);
    let is_async = match before {
        [.., before, last] if is(last, "move") => is(before, "async"),
        [.., last] => is(last, "async"),
        [] => false,
    };
    is_async && group.delimiter() == Delimiter::Brace
}

fn mentions(group: &Group, lease: &Ident) -> bool {
    let mut mentions = Mentions::default();
    mentions.add(group.stream());
    mentions.contains(&lease.to_string())
}

fn bind_here(group: &Group, lease: &Ident, sources: &mut Vec<Ident>) -> TokenStream {
    let mixed = Span::mixed_site();
    let source = format_ident!("__{lease}{}", sources.len(), span = mixed);
    let inner = group.stream();
    let inner = quote_spanned!(mixed=> let #lease = #source.get(); #inner);
    sources.push(source);
    inner
}

/// Whether an async block of the body can use the lease.
pub(crate) fn can_use_lease(body: &TokenStream, lease: &Ident) -> bool {
    !bind_lease(body.clone(), lease).1.is_empty()
}

/// A closure for a future that outlives the call of the function must own what it uses.
pub(crate) fn owning(closure: &Expr) -> Expr {
    let mut closure = closure.clone();
    if let Expr::Closure(closure) = &mut closure {
        closure.capture.get_or_insert_default();
    }
    closure
}

//! Functions that return a future: by hand, or made so by `#[async_trait]`, `#[async_recursion]` and their like.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::{
    Block, Expr, ExprGroup, ExprParen, FnArg, GenericArgument, Local, Pat, Path, PathArguments, PathSegment,
    ReturnType, Signature, Stmt, Type, TypeParamBound,
};

use crate::mentions::Mentions;
use crate::params;

/// How a function makes its future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What the function's future resolves to.
pub(crate) fn output(sig: &Signature) -> Option<&Type> {
    let ty = declared(&sig.output)?;
    if sig.asyncness.is_some() { Some(ty) } else { future(ty).map(|(_, output)| output) }
}

fn declared(output: &ReturnType) -> Option<&Type> {
    match output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(ty),
    }
}

/// Whether an async function resolves to what looks like one more future.
pub(crate) fn yields_future(sig: &Signature) -> bool {
    let looks = |ty: &Type| ty.to_token_stream().to_string().contains("Fut");
    match (sig.asyncness, output(sig).map(bare)) {
        (Some(_), Some(ty @ Type::ImplTrait(_))) => looks(ty),
        (Some(_), Some(ty @ Type::Path(path))) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            name.ends_with("Fut")
                || name.ends_with("Future")
                || name == "JoinHandle"
                || name == "Ready"
                || (["Box", "Pin"].contains(&&*name) && looks(ty))
        }),
        _ => false,
    }
}

/// Whether the statements plainly don't get to their end.
pub(crate) fn never_ends(body: &TokenStream) -> bool {
    let stmts = Block::parse_within.parse2(body.clone()).unwrap_or_default();
    let panics = |path: &Path| {
        let names = ["panic", "todo", "unimplemented", "unreachable"];
        path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
    };
    match stmts.last() {
        Some(Stmt::Expr(Expr::Return(_), _)) => true,
        Some(Stmt::Expr(Expr::Loop(endless), _)) => !endless.body.to_token_stream().to_string().contains("break"),
        Some(Stmt::Expr(Expr::Macro(called), _)) => panics(&called.mac.path),
        Some(Stmt::Macro(called)) => panics(&called.mac.path),
        _ => false,
    }
}

fn future(ty: &Type) -> Option<(Shape, &Type)> {
    match ty {
        Type::Group(group) => future(&group.elem),
        Type::Paren(paren) => future(&paren.elem),
        Type::ImplTrait(opaque) => Some((Shape::Opaque, future_bound(&opaque.bounds)?)),
        Type::Path(ty) => boxed(ty.path.segments.last()?).map(|output| (Shape::Boxed, output)),
        _ => None,
    }
}

/// `Pin<Box<..>>`, or the aliases of the crate `futures`.
fn boxed(last: &PathSegment) -> Option<&Type> {
    let inner = arguments(last).last();
    match last.ident.to_string().as_str() {
        "BoxFuture" | "LocalBoxFuture" => inner,
        "Pin" => {
            let Type::Path(pointer) = bare(inner?) else { return None };
            let pointer = pointer.path.segments.last().filter(|last| last.ident == "Box")?;
            match bare(arguments(pointer).next()?) {
                Type::TraitObject(object) => future_bound(&object.bounds),
                Type::ImplTrait(opaque) => future_bound(&opaque.bounds),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The type without the parentheses that may stand around it, and without the marks of a macro that it came through.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        ty => ty,
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
fn future_bound<'a>(bounds: impl IntoIterator<Item = &'a TypeParamBound>) -> Option<&'a Type> {
    bounds.into_iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => output_of_future(&bound.path),
        _ => None,
    })
}

fn output_of_future(path: &Path) -> Option<&Type> {
    let last = path.segments.last().filter(|last| last.ident == "Future")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(&assoc.ty),
        _ => None,
    })
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
    let mut hidden = Vec::new();
    if !names.is_empty() {
        in_async_blocks(body.clone(), &mut |block| {
            let stmts = Block::parse_within.parse2(block.inner()).unwrap_or_default();
            let found = hidden.len();
            for name in &names {
                let local = stmts.iter().find_map(|stmt| binding_of(stmt, name));
                hidden.extend(local.map(|local| ((*name).clone(), local.pat.clone())));
            }
            if hidden.len() == found {
                // `#[instrument]` puts one more async block around.
                hidden.extend(hidden_patterns(sig, &block.inner()));
            }
            block.tokens()
        });
    }
    hidden
}

// Input:
//     Box::pin(async move { let id = id; let __ret: Result<(), Error> = { .. }; __ret })      with `id` in the key
//
// Output:
//     Box::pin(async move { let id = id; let _ = &id; let __ret: Result<(), Error> = { .. }; __ret })
//
/// Touches what the attribute's arguments mention, where `#[async_trait]` binds it once more: it is used.
pub(crate) fn touch(sig: &Signature, body: TokenStream, mentions: &Mentions) -> TokenStream {
    in_async_blocks(body, &mut |block| {
        let stmts = Block::parse_within.parse2(block.inner()).unwrap_or_default();
        if !stmts.iter().any(|stmt| names(sig).any(|name| binding_of(stmt, name).is_some())) {
            return block.with(|inner| touch(sig, inner, mentions));
        }
        let touched = stmts.iter().map(|stmt| {
            let local = names(sig).find_map(|name| binding_of(stmt, name));
            let bound = local.map(|local| params::bindings(&local.pat)).unwrap_or_default();
            let touched = params::warned_of(&bound).filter(|name| mentions.contains(&name.to_string()));
            quote_spanned!(Span::mixed_site()=> #stmt #(let _ = &#touched;)*)
        });
        block.with(|_| touched.collect())
    })
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

/// `let pattern = name;` or `let pattern = { let name = name; name };`
fn binding_of<'a>(stmt: &'a Stmt, name: &Ident) -> Option<&'a Local> {
    let Stmt::Local(local) = stmt else { return None };
    let last = match &*local.init.as_ref()?.expr {
        Expr::Block(block) => block.block.stmts.last().map(Stmt::to_token_stream),
        expr => Some(expr.to_token_stream()),
    };
    last.is_some_and(|last| *name == last.to_string()).then_some(local)
}

// Input:
//     self.count += 1; Box::pin(async move { lease.ensure_held() })      with `lease = lease`
//
// Output:
//     self.count += 1;
//     Box::pin(({
//         let __distlock_lease0 = __distlock_lease0.again();
//         async move { let lease = __distlock_lease0.get(); lease.ensure_held() }
//     }))
//
/// Binds the lease in each async block that mentions it, and returns what the blocks get it from. The function is called
/// before there is a lease, and its async blocks run when there is one. A block in a loop makes more than one future.
///
/// In parentheses, since what starts a statement with a brace ends with it.
pub(crate) fn bind_lease(
    body: TokenStream,
    lease: &Ident,
    get: &dyn Fn(&Ident) -> TokenStream,
) -> (TokenStream, Vec<Ident>) {
    let mut sources = Vec::new();
    let body = in_async_blocks(body, &mut |block| {
        let mut mentions = Mentions::default();
        mentions.add(block.inner());
        if !mentions.contains(&lease.to_string()) {
            return block.tokens();
        }
        let mixed = Span::mixed_site();
        let source = format_ident!("__distlock_{}{}", lease.unraw(), sources.len(), span = mixed);
        let value = get(&source);
        let bound = block.with(|inner| quote_spanned!(mixed=> let #lease = #value; #inner));
        let bound = quote_spanned!(mixed=> ({ let #source = #source.again(); #bound }));
        sources.push(source);
        bound
    });
    (body, sources)
}

/// Whether an async block of the body can use the lease.
pub(crate) fn can_use_lease(body: &TokenStream, lease: &Ident) -> bool {
    !bind_lease(body.clone(), lease, &|source| source.to_token_stream()).1.is_empty()
}

/// `async { .. }` or `async move { .. }`
struct AsyncBlock {
    head: Vec<TokenTree>,
    block: Group,
}

impl AsyncBlock {
    /// The block, if that is how `head` goes on, and so the end of `before`, which is then taken from it.
    fn starting(before: &mut Vec<TokenTree>, next: &TokenTree) -> Option<Self> {
        let is = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident == word);
        let length = match before.as_slice() {
            [.., first, last] if is(last, "move") && is(first, "async") => 2,
            [.., last] if is(last, "async") => 1,
            _ => return None,
        };
        let block = braced(next)?;
        Some(Self { head: before.split_off(before.len() - length), block })
    }

    fn inner(&self) -> TokenStream {
        self.block.stream()
    }

    fn tokens(self) -> TokenStream {
        self.with(|inner| inner)
    }

    fn with(self, change: impl FnOnce(TokenStream) -> TokenStream) -> TokenStream {
        let block = map_group(&self.block, change);
        self.head.into_iter().chain([block.into()]).collect()
    }
}

/// The braces of a block, which may have come through a macro as `$body`.
fn braced(token: &TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else { return None };
    match group.delimiter() {
        Delimiter::Brace => Some(group.clone()),
        Delimiter::None => {
            let mut tokens = group.stream().into_iter();
            tokens.next().filter(|_| tokens.next().is_none()).as_ref().and_then(braced)
        }
        _ => None,
    }
}

/// Changes the outermost async blocks. They are looked for among the tokens, since the body may be of macros.
fn in_async_blocks(tokens: TokenStream, change: &mut dyn FnMut(AsyncBlock) -> TokenStream) -> TokenStream {
    let mut changed: Vec<TokenTree> = Vec::new();
    for token in tokens {
        if let Some(block) = AsyncBlock::starting(&mut changed, &token) {
            changed.extend(change(block));
            continue;
        }
        changed.push(match token {
            TokenTree::Group(group) => map_group(&group, |inner| in_async_blocks(inner, change)).into(),
            token => token,
        });
    }
    changed.into_iter().collect()
}

fn map_group(group: &Group, change: impl FnOnce(TokenStream) -> TokenStream) -> Group {
    let mut new = Group::new(group.delimiter(), change(group.stream()));
    new.set_span(group.span());
    new
}

/// A closure for a future that outlives the call of the function must own what it uses.
pub(crate) fn owning(closure: &Expr) -> Expr {
    let mut closure = closure.clone();
    let mut inner = &mut closure;
    while let Expr::Paren(ExprParen { expr, .. }) | Expr::Group(ExprGroup { expr, .. }) = inner {
        inner = expr;
    }
    if let Expr::Closure(closure) = inner {
        closure.capture.get_or_insert_default();
    }
    closure
}

#[cfg(test)]
mod tests;

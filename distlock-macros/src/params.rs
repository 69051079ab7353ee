//! The parameters, and how they get into the locked body.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Pat, PatIdent, PatType, Signature, Type};

use crate::mentions::Mentions;

/// A parameter other than `self`.
#[derive(Clone)]
pub(crate) struct Param {
    /// Those of its attributes that matter for a `let`.
    attrs: Vec<Attribute>,
    /// The name that the signature binds: the user's own, or one of ours in place of a pattern.
    ident: Ident,
    pat: Pat,
}

// Input:
//     (&mut self, id: u64, mut total: Cents, (from, _): Pair, _: Audit, _log: Log)
//
// Output:
//     (&mut self, id: u64, total: Cents, __distlock_arg3: Pair, __distlock_arg4: Audit, _log: Log)
//
/// Gives every parameter a name to move it by, and returns what each was before.
pub(crate) fn name_all(sig: &mut Signature) -> Vec<Param> {
    let mut params = Vec::new();
    for (position, input) in sig.inputs.iter_mut().enumerate() {
        if let FnArg::Typed(typed) = input {
            params.push(name(position, typed));
        }
    }
    params
}

fn name(position: usize, typed: &mut PatType) -> Param {
    let span = Span::mixed_site().located_at(typed.pat.span());
    let ours = || format_ident!("__distlock_arg{position}", span = span);
    let ident = named(&typed.pat).cloned().unwrap_or_else(ours);
    let attrs = attributes_of_let(&mut typed.attrs);
    let named =
        Pat::Ident(PatIdent { attrs: Vec::new(), by_ref: None, mutability: None, ident: ident.clone(), subpat: None });
    let pat = std::mem::replace(&mut *typed.pat, named);
    Param { attrs, ident, pat }
}

/// The parameters with the patterns that stand in the body for some of the names in the signature.
pub(crate) fn seen(params: &[Param], hidden: &[(Ident, Pat)]) -> Vec<Param> {
    let seen = params.iter().map(|param| {
        let pattern = hidden.iter().find(|(name, _)| matches!(&param.pat, Pat::Ident(pat) if pat.ident == *name));
        let pat = pattern.map_or(&param.pat, |(_, pattern)| pattern).clone();
        Param { pat, ..param.clone() }
    });
    seen.collect()
}

/// The name of `id`, `mut id` or `_id`. A capital may be a unit struct, which binds nothing.
fn named(pat: &Pat) -> Option<&Ident> {
    let Pat::Ident(pat) = pat else { return None };
    (!is_capital(&pat.ident) && pat.by_ref.is_none() && pat.subpat.is_none()).then_some(&pat.ident)
}

/// Whether a leading `_` says that the name won't be used.
fn is_unused(name: &Ident) -> bool {
    name.to_string().starts_with('_')
}

/// `#[cfg]` and lint levels hold for the `let` as for the parameter; what `#[expect]` waits for is at the `let` alone.
fn attributes_of_let(attrs: &mut Vec<Attribute>) -> Vec<Attribute> {
    let of_let = |attr: &&Attribute| {
        let names = ["cfg", "cfg_attr", "allow", "warn", "deny", "forbid", "expect"];
        names.iter().any(|name| attr.path().is_ident(name))
    };
    let copies = attrs.iter().filter(of_let).cloned().collect();
    attrs.retain(|attr| !attr.path().is_ident("expect"));
    copies
}

// Input:
//     async fn pay(&self, id: u64, mut total: Cents, (from, _): Pair, _: Audit, _log: Log)      with `id` in the key
//
// Output:
//     let _ = &self;
//     let id = id;
//     let _ = &id;
//     let mut total = total;
//     let __distlock_arg3 = __distlock_arg3;
//     let (from, _) = __distlock_arg3;
//     let __distlock_arg4 = __distlock_arg4;
//     let _log = { #[allow(clippy::used_underscore_binding)] _log };
//
/// Moves all parameters into the block, in order and whole, as rustc does for every async function. So they are
/// dropped in the plain function's order, and with the body, before the lock is released.
///
/// What the attribute's arguments mention is touched: it is used, and must not be called unused.
pub(crate) fn move_all(sig: &Signature, params: &[Param], mentions: &Mentions) -> TokenStream {
    // `self` can't be bound again; naming it captures it, and captures are dropped after the locals, as `self` is.
    let receiver = sig.receiver().map(|receiver| receiver.self_token);
    let receiver = receiver.map(|this| quote!(let _ = &#this;));
    let moves = params.iter().map(|param| move_one(param, mentions));
    quote!(#receiver #(#moves)*)
}

fn move_one(param: &Param, mentions: &Mentions) -> TokenStream {
    let Param { attrs, ident, pat } = param;
    let attrs = quote!(#(#attrs)*);
    let mixed = Span::mixed_site();
    if let Some(name) = named(pat) {
        if is_unused(name) {
            // To clippy, to use such a name is a mistake, and so is a lone `let _name = value`. rustc does both for an async
            // function. In braces of ours, the value is no concern of clippy's second lint.
            let value = quote_spanned!(mixed=> { #[allow(clippy::used_underscore_binding)] #ident });
            return quote_spanned!(mixed=> #attrs let #pat = #value;);
        }
        let touched = mentions.contains(&name.to_string()).then(|| quote_spanned!(mixed=> #attrs let _ = &#name;));
        return quote_spanned!(mixed=> #attrs let #pat = #ident; #touched);
    }
    // What a pattern leaves unbound must move, too.
    let mutable = borrows_mutably(pat).then(|| quote_spanned!(mixed=> mut));
    // What is expected, is expected of the pattern.
    let kept = param.attrs.iter().filter(|attr| !attr.path().is_ident("expect"));
    let whole = quote_spanned!(mixed=> #(#kept)* let #mutable #ident = #ident;);
    let bound = match pat {
        Pat::Wild(_) => None,
        pat => Some(quote_spanned!(mixed=> #attrs let #pat = #ident;)),
    };
    let names = bindings(pat);
    let touched = warned_of(&names).filter(|name| mentions.contains(&name.to_string()));
    quote_spanned!(mixed=> #whole #bound #(#attrs let _ = &#touched;)*)
}

/// Whether the pattern has a `ref mut`.
fn borrows_mutably(pat: &Pat) -> bool {
    let mut found = false;
    walk(&mut pat.clone(), &mut |binding| found |= binding.by_ref.is_some() && binding.mutability.is_some());
    found
}

// Input:
//     { let __distlock_key = KEY; Call::new(manager(), __distlock_key, ..) }
//
// Output:
//     loop {
//         match __distlock_arg3 {
//             (from, _) if { if true { let _ = &from; break { .. } } false } => loop {},
//             _ => {}
//         }
//     }
//
/// Lets `value` see the bindings of patterns, with their own types, before anything moves: a guard looks at what
/// its pattern binds, and moves nothing. It always breaks out with the value, and says so in a way that makes no
/// code unreachable; its arm is never entered. Only patterns that `value` mentions are wrapped around it.
pub(crate) fn in_view(value: TokenStream, params: &[Param], mentions: &Mentions) -> TokenStream {
    params.iter().rev().fold(value, |value, param| {
        if !is_in_view(param, mentions) {
            return value;
        }
        let names = bindings(&param.pat);
        let ident = &param.ident;
        let touched = warned_of(&names);
        let mut pat = param.pat.clone();
        // An alternative needs parentheses as a parameter, and here it must have none.
        while let Pat::Paren(paren) = pat {
            pat = *paren.pat;
        }
        walk(&mut pat, &mut |binding| binding.mutability = None);
        quote! {
            loop {
                match #ident {
                    #pat if { if true { #(let _ = &#touched;)* break #value } false } => loop {},
                    _ => {}
                }
            }
        }
    })
}

/// Whether `in_view` has anything to do.
pub(crate) fn are_in_view(params: &[Param], mentions: &Mentions) -> bool {
    params.iter().any(|param| is_in_view(param, mentions))
}

fn is_in_view(param: &Param, mentions: &Mentions) -> bool {
    named(&param.pat).is_none() && bindings(&param.pat).iter().any(|name| mentions.contains(&name.to_string()))
}

/// Those of the names that the compiler would call unused. The others must not be used behind the user's back.
pub(crate) fn warned_of(names: &[Ident]) -> impl Iterator<Item = &Ident> {
    names.iter().filter(|name| !is_unused(name))
}

/// The names that a pattern binds, and those of unqualified constants and unit structs in it, which look the same.
pub(crate) fn bindings(pat: &Pat) -> Vec<Ident> {
    let mut names: Vec<Ident> = Vec::new();
    walk(&mut pat.clone(), &mut |binding| {
        // An alternative binds its names once more.
        if !names.contains(&binding.ident) {
            names.push(binding.ident.clone());
        }
    });
    names
}

/// The names that a parameter binds for sure: what is spelled like a type is one, unless it stands alone and its type
/// has another name.
pub(crate) fn certain_bindings(typed: &PatType) -> Vec<Ident> {
    let mut names = bindings(&typed.pat);
    let alone = matches!(&*typed.pat, Pat::Ident(pat) if pat.subpat.is_none());
    let ty = match &*typed.ty {
        Type::Path(ty) => ty.path.segments.last().map(|last| &last.ident),
        _ => None,
    };
    names.retain(|name| !is_capital(name) || (alone && ty != Some(name)));
    names
}

pub(crate) fn is_capital(name: &Ident) -> bool {
    name.to_string().starts_with(char::is_uppercase)
}

fn walk(pat: &mut Pat, visit: &mut dyn FnMut(&mut PatIdent)) {
    let mut inner: Vec<&mut Pat> = match pat {
        Pat::Ident(binding) => {
            visit(binding);
            binding.subpat.iter_mut().map(|(_, pat)| &mut **pat).collect()
        }
        Pat::Or(pat) => pat.cases.iter_mut().collect(),
        Pat::Paren(pat) => vec![&mut *pat.pat],
        Pat::Reference(pat) => vec![&mut *pat.pat],
        Pat::Slice(pat) => pat.elems.iter_mut().collect(),
        Pat::Struct(pat) => pat.fields.iter_mut().map(|field| &mut *field.pat).collect(),
        Pat::Tuple(pat) => pat.elems.iter_mut().collect(),
        Pat::TupleStruct(pat) => pat.elems.iter_mut().collect(),
        _ => Vec::new(),
    };
    for pat in &mut inner {
        walk(pat, visit);
    }
}

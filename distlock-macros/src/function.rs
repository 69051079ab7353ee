//! The annotated item: an async function, or one that returns a future, or the reason why it can't be locked.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, TokenStreamExt};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{
    AttrStyle, Attribute, Error, FnArg, LitStr, Meta, Pat, ReturnType, Signature, Token, Visibility, braced, token,
};

use crate::hygiene;
use crate::params;
use crate::returning::{self, Shape};

/// The body is kept as tokens: what of ours depends on it looks for little in it.
pub(crate) struct Function {
    pub(crate) shape: Shape,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) brace: token::Brace,
    pub(crate) body: TokenStream,
    /// The patterns of parameters that have become names, and stand in the body.
    pub(crate) hidden: Vec<(Ident, Pat)>,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attrs = Attribute::parse_outer(input)?;
        let start = input.fork();
        let vis = input.parse()?;
        if !starts_function(input) {
            return Err(
                start.error("`distributed_lock` belongs on an `async fn`; put it on each function to be locked")
            );
        }
        let sig: Signature = input.parse()?;
        let shape = lockable(&sig, input)?;
        let body;
        let brace = braced!(body in input);
        let inner = Attribute::parse_inner(&body)?;
        attrs.extend(inner.into_iter().map(outer));
        let body = body.parse()?;
        let hidden = if shape == Shape::Async { Vec::new() } else { returning::hidden_patterns(&sig, &body) };
        Ok(Self { shape, attrs, vis, sig, brace, body, hidden })
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attrs, vis, sig, brace, body, .. } = self;
        tokens.append_all(attrs);
        vis.to_tokens(tokens);
        sig.to_tokens(tokens);
        brace.surround(tokens, |tokens| body.to_tokens(tokens));
    }
}

impl Function {
    /// Takes away the further attributes of ours, and returns the arguments of each.
    ///
    /// Left in place, each would be expanded after this one, around it: the last one written would be the outermost lock.
    pub(crate) fn take_locks(&mut self) -> Vec<TokenStream> {
        let is_ours =
            |attr: &Attribute| attr.path().segments.last().is_some_and(|last| last.ident == "distributed_lock");
        let (ours, others) = std::mem::take(&mut self.attrs).into_iter().partition(is_ours);
        self.attrs = others;
        let ours: Vec<Attribute> = ours;
        let arguments = ours.into_iter().map(|attr| match attr.meta {
            Meta::List(list) => list.tokens,
            Meta::NameValue(pair) => pair.value.into_token_stream(),
            Meta::Path(_) => TokenStream::new(),
        });
        arguments.collect()
    }

    /// The names that an argument of the attribute may use: what the parameters bind.
    pub(crate) fn names(&self) -> Vec<String> {
        self.bindings().map(|name| name.to_string()).collect()
    }

    fn bindings(&self) -> impl Iterator<Item = Ident> {
        let params = self.sig.inputs.iter().flat_map(|input| match input {
            FnArg::Typed(typed) => params::certain_bindings(typed),
            FnArg::Receiver(_) => Vec::new(),
        });
        let hidden = self.hidden.iter().flat_map(|(_, pat)| params::bindings(pat));
        params.chain(hidden.filter(|name| !params::is_capital(name)))
    }

    /// Whether several parameters have the name, told apart by macro hygiene alone, or not at all.
    pub(crate) fn is_ambiguous(&self, name: &str) -> bool {
        let typed = self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        // Of parameters under `#[cfg]` one may be there in place of another.
        let kept = typed.filter(|typed| !typed.attrs.iter().any(|attr| attr.path().is_ident("cfg")));
        kept.flat_map(params::certain_bindings).filter(|binding| binding == name).count() > 1
    }

    /// Makes words mean the parameters of the same names. Within an expression, they stand in `place`.
    pub(crate) fn resolve(&self, tokens: TokenStream, place: Span) -> TokenStream {
        let mut names: Vec<Ident> = self.bindings().collect();
        names.extend(self.sig.receiver().map(|receiver| Ident::new("self", receiver.self_token.span)));
        hygiene::resolved(tokens, &names, place)
    }

    pub(crate) fn has_params(&self) -> bool {
        let typed = |input: &FnArg| matches!(input, FnArg::Typed(_));
        self.sig.inputs.iter().any(typed)
    }

    pub(crate) fn has_generic(&self, name: &str) -> bool {
        let mut consts = self.sig.generics.const_params();
        consts.any(|param| param.ident == name)
    }

    pub(crate) fn name(&self) -> Ident {
        self.sig.ident.unraw()
    }
}

/// Inside the body it would be an attribute of an inner block, where none may be.
fn outer(attr: Attribute) -> Attribute {
    Attribute { style: AttrStyle::Outer, ..attr }
}

/// Whether `[const] [async] [unsafe] [extern ["abi"]] fn` follows.
fn starts_function(input: ParseStream<'_>) -> bool {
    let input = input.fork();
    let _ = input.parse::<Option<Token![const]>>();
    let _ = input.parse::<Option<Token![async]>>();
    let _ = input.parse::<Option<Token![unsafe]>>();
    if let Ok(Some(_)) = input.parse::<Option<Token![extern]>>() {
        let _ = input.parse::<Option<LitStr>>();
    }
    input.peek(Token![fn])
}

fn lockable(sig: &Signature, rest: ParseStream<'_>) -> syn::Result<Shape> {
    let name = &sig.ident;
    if let Some(constness) = &sig.constness {
        let message = "a `const fn` can't wait for a lock; remove `const` and make it an `async fn`";
        return Err(Error::new_spanned(constness, message));
    }
    if let Some(abi) = &sig.abi {
        let message = format!(
            "an `extern` function can't be locked; lock an `async fn` that does the work, and call that from `{name}`"
        );
        return Err(Error::new_spanned(abi, message));
    }
    let Some(shape) = Shape::of(sig) else {
        return Err(Error::new_spanned(sig.fn_token, not_async(sig)));
    };
    if rest.peek(Token![;]) {
        let message = format!("`{name}` has no body to lock; put the attribute on its implementations");
        return Err(Error::new_spanned(sig.fn_token, message));
    }
    Ok(shape)
}

fn not_async(sig: &Signature) -> String {
    let name = &sig.ident;
    if seems_future(&sig.output) {
        return format!(
            "a function that returns its future must say so in its return type; write `async fn {name}`, or return \
             `impl Future<Output = ..>`, `Pin<Box<dyn Future<Output = ..>>>` or `BoxFuture<..>`"
        );
    }
    format!(
        "only an `async fn` can wait for a lock; write `async fn {name}`, and if that is what you wrote, move \
         `#[distributed_lock(..)]` above the attribute that has taken the `async` away"
    )
}

/// Whether the type looks like a future, but like none that is known.
fn seems_future(output: &ReturnType) -> bool {
    let text = output.to_token_stream().to_string();
    ["Fut", "Pin <", "Ready <", "JoinHandle <"].iter().any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::Function;

    fn refusal(item: proc_macro2::TokenStream) -> String {
        match syn::parse2::<Function>(item) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_cannot_be_locked_is_refused_with_what_to_do() {
        let table = [
            (
                quote!(
                    struct S;
                ),
                "belongs on an `async fn`",
            ),
            (quote!(unsafe impl S {}), "belongs on an `async fn`"),
            (
                quote!(
                    const X: u8 = 1;
                ),
                "belongs on an `async fn`",
            ),
            (
                quote!(
                    fn f() {}
                ),
                "write `async fn f`",
            ),
            (
                quote!(
                    const fn f() {}
                ),
                "a `const fn`",
            ),
            (
                quote!(
                    extern "C" fn f() {}
                ),
                "an `extern` function",
            ),
            (
                quote!(
                    async fn f();
                ),
                "no body to lock",
            ),
        ];
        for (item, part) in table {
            let message = refusal(item.clone());
            assert!(message.contains(part), "`{item}`: {message}");
        }
    }

    #[test]
    fn futures_that_are_not_known_are_refused_with_what_to_do() {
        let types = [
            quote!(Pin<&'static mut dyn Future<Output = ()>>),
            quote!(FutureOf<u8>),
            quote!(std::future::Ready<u8>),
            quote!(JoinHandle<()>),
            quote!(Box<dyn Future<Output = u8> + Unpin>),
        ];
        for ty in types {
            let message = refusal(quote!(fn f() -> #ty {}));
            assert!(message.contains("say so in its return type"), "`{ty}`: {message}");
        }
    }

    #[test]
    fn attributes_inside_the_body_become_the_functions_own() -> syn::Result<()> {
        let item = quote!(
            #[doc = "out"]
            pub(crate) async unsafe fn f() {
                #![allow(unused)]
                1;
            }
        );
        let function: Function = syn::parse2(item)?;
        assert_eq!(function.attrs.len(), 2);
        assert_eq!(function.body.to_string(), "1 ;");
        Ok(())
    }

    #[test]
    fn names_are_those_that_the_patterns_bind() -> syn::Result<()> {
        let item = quote!(
            async fn f(&self, mut a: A, (b, _): B, C { d, e: [f, .., ref g] }: C, h @ I(j): I, r#type: u8, _: K) {}
        );
        let function: Function = syn::parse2(item)?;
        let names = ["a", "b", "d", "f", "g", "h", "j", "r#type"];
        assert_eq!(function.names(), names);
        Ok(())
    }
}

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::Signature;

use super::{Shape, bind_lease, hidden_patterns, never_ends, output, yields_future};

fn shown(sig: TokenStream) -> syn::Result<Option<(Shape, String)>> {
    let sig: Signature = syn::parse2(sig)?;
    let output = output(&sig).map(|ty| ty.to_token_stream().to_string()).unwrap_or_default();
    Ok(Shape::of(&sig).map(|shape| (shape, output)))
}

#[test]
fn futures_are_known_by_their_types() -> syn::Result<()> {
    let table = [
        (quote!(async fn f() -> T), Some(Shape::Async)),
        (quote!(fn f() -> impl Future<Output = T>), Some(Shape::Opaque)),
        (quote!(fn f() -> impl Send + 'a + std::future::Future<Output = T> + use<'a>), Some(Shape::Opaque)),
        (quote!(fn f() -> (impl Future<Output = T>)), Some(Shape::Opaque)),
        (quote!(fn f() -> Pin<Box<dyn Future<Output = T>>>), Some(Shape::Boxed)),
        (quote!(fn f() -> ::core::pin::Pin<Box<dyn ::core::future::Future<Output = T> + Send>>), Some(Shape::Boxed)),
        (quote!(fn f() -> Pin<Box<impl Future<Output = T>>>), Some(Shape::Boxed)),
        (quote!(fn f() -> futures::future::BoxFuture<'static, T>), Some(Shape::Boxed)),
        (quote!(fn f() -> LocalBoxFuture<'_, T>), Some(Shape::Boxed)),
        (quote!(fn f()), None),
        (quote!(fn f() -> T), None),
        (quote!(fn f() -> impl Iterator<Item = T>), None),
        (quote!(fn f() -> impl Future), None),
        (quote!(fn f() -> Pin<&mut dyn Future<Output = T>>), None),
        (quote!(fn f() -> Box<dyn Future<Output = T> + Unpin>), None),
    ];
    for (sig, shape) in table {
        let expected = shape.map(|shape| (shape, "T".to_owned()));
        assert_eq!(shown(sig.clone())?, expected, "`{sig}`");
    }
    Ok(())
}

#[test]
fn the_lease_is_bound_in_the_outermost_async_blocks_that_mention_it() {
    let table = [
        (
            quote!(async { lease }),
            quote!(
                ({
                    let __distlock_lease0 = __distlock_lease0.again();
                    async {
                        let lease = __distlock_lease0.get();
                        lease
                    }
                })
            ),
        ),
        (
            quote!(if a { return Box::pin(async move { f!("{lease}") }); } Box::pin(async move { lease })),
            quote!(
                if a {
                    return Box::pin(({
                        let __distlock_lease0 = __distlock_lease0.again();
                        async move { let lease = __distlock_lease0.get(); f!("{lease}") }
                    }));
                }
                Box::pin(({
                    let __distlock_lease1 = __distlock_lease1.again();
                    async move { let lease = __distlock_lease1.get(); lease }
                }))
            ),
        ),
        (
            quote!(async move {
                let a = async { lease.a() };
                a
            }),
            quote!(
                ({
                    let __distlock_lease0 = __distlock_lease0.again();
                    async move {
                        let lease = __distlock_lease0.get();
                        let a = async { lease.a() };
                        a
                    }
                })
            ),
        ),
        (quote!(f(lease, async { 1 })), quote!(f(lease, async { 1 }))),
        (quote!(async move |lease| { lease }), quote!(async move |lease| { lease })),
    ];
    for (body, bound) in table {
        let (body, _) = bind_lease(body, &format_ident!("lease"), &|source| quote!(#source.get()));
        assert_eq!(body.to_string(), bound.to_string());
    }
}

#[test]
fn the_patterns_of_async_trait_are_found_in_the_body() -> syn::Result<()> {
    let sig: Signature = syn::parse2(quote!(fn f(a: A, __arg1: B, __arg2: C, __arg3: D) -> E))?;
    let inner = quote! {
        let a = a;
        let (b, _) = { let __arg1 = __arg1; __arg1 };
        let __arg2 = __arg2;
        let c = other(__arg3);
    };
    let around =
        quote!(Box::pin(async move { let future = async move { #inner }; Instrument::instrument(future).await }));
    for body in [quote!(Box::pin(async move { #inner })), around] {
        let hidden = hidden_patterns(&sig, &body).into_iter();
        let hidden: Vec<String> = hidden.map(|(name, pat)| format!("{name}: {}", pat.to_token_stream())).collect();
        assert_eq!(hidden, ["__arg1: (b , _)", "__arg2: __arg2"]);
    }
    Ok(())
}

#[test]
fn an_output_that_is_a_future_is_known() -> syn::Result<()> {
    let table = [
        (quote!(tokio::task::JoinHandle<()>), true),
        (quote!(Pin<Box<dyn Future<Output = T>>>), true),
        (quote!(Box<dyn Future<Output = T> + Unpin>), true),
        (quote!(BoxFuture<'static, T>), true),
        (quote!(impl Future<Output = T> + Send), true),
        (quote!((std::future::Ready<T>)), true),
        (quote!(Pin<Box<dyn Stream>>), false),
        (quote!(Result<JoinHandle<()>, E>), false),
        (quote!(Vec<BoxFuture<'static, T>>), false),
        (quote!(impl Iterator<Item = T>), false),
        (quote!(()), false),
    ];
    for (ty, expected) in table {
        let sig: Signature = syn::parse2(quote!(async fn f() -> #ty))?;
        assert_eq!(yields_future(&sig), expected, "`{ty}`");
        assert!(
            !yields_future(&syn::parse2(quote!(fn f() -> impl Future<Output = #ty>))?),
            "`{ty}` of no async function"
        );
    }
    Ok(())
}

#[test]
fn a_body_that_returns_or_panics_never_ends() {
    let ends = [
        quote!(a),
        quote!(return a; b),
        quote!(loop {
            break a;
        }),
        quote!(f!();),
        quote!(if a {
            return b;
        }),
    ];
    for body in ends {
        assert!(!never_ends(&body), "`{body}`");
    }
    let never = [
        quote!(a; return b;),
        quote!(return b),
        quote!(panic!("a")),
        quote!(std::unreachable!();),
        quote!(loop {
            a;
        }),
    ];
    for body in never {
        assert!(never_ends(&body), "`{body}`");
    }
}

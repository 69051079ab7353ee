//! Whose the tokens of a placeholder are.
//!
//! The parts of a string literal have no spans of their own. With the literal's span, an operator would be the user's,
//! and whatever the compiler or clippy offered to write in place of it, `cargo fix` would write over the whole literal:
//! `"order:{id as u64}"` would become a key without placeholder. They offer little for what a macro wrote.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};

/// Makes all tokens ours, in the place where they have been written. What is no variable means the same as before.
pub(crate) fn ours(tokens: TokenStream) -> TokenStream {
    each(tokens, &mut |mut token| {
        let span = Span::mixed_site().located_at(token.span());
        match token {
            // In our edition it is a keyword, and in the user's it may be none.
            TokenTree::Ident(name) if name == "gen" => Ident::new_raw("gen", span).into(),
            _ => {
                token.set_span(span);
                token
            }
        }
    })
}

/// Makes words mean the parameters of the same names, also if the one comes out of a macro and the other does not.
///
/// Such a word is the user's again. Within an expression it stands in another `place` than the literal: what is offered for
/// a value that moves or is of the wrong type would be written there.
pub(crate) fn resolved(tokens: TokenStream, names: &[Ident], place: Span) -> TokenStream {
    let alone = tokens.clone().into_iter().nth(1).is_none();
    each(tokens, &mut |token| match token {
        TokenTree::Ident(mut word) => {
            if let Some(name) = names.iter().find(|name| **name == word) {
                let place = if alone { word.span() } else { place };
                word.set_span(place.resolved_at(name.span()));
            }
            word.into()
        }
        // What a format captures by name means what stands in the literal's view.
        TokenTree::Literal(mut text) => {
            let captured = |name: &&Ident| text.to_string().contains(&format!("{{{name}"));
            if let Some(name) = names.iter().find(captured) {
                text.set_span(text.span().resolved_at(name.span()));
            }
            text.into()
        }
        token => token,
    })
}

fn each(tokens: TokenStream, change: &mut dyn FnMut(TokenTree) -> TokenTree) -> TokenStream {
    let changed = tokens.into_iter().map(|token| {
        let TokenTree::Group(group) = token else { return change(token) };
        let mut inner = Group::new(group.delimiter(), each(group.stream(), change));
        inner.set_span(group.span());
        change(inner.into())
    });
    changed.collect()
}

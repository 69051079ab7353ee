//! Which names the arguments of the attribute use.

use proc_macro2::{TokenStream, TokenTree};

/// Every word in some tokens, and every one in their string literals: `format!("{id}")` uses `id`.
///
/// That may be more than is used, a field's name for instance; then a parameter of that name is not called unused.
#[derive(Default)]
pub(crate) struct Mentions(Vec<String>);

impl Mentions {
    pub(crate) fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Ident(ident) => self.0.push(ident.to_string()),
                TokenTree::Literal(literal) => self.add_words(&literal.to_string()),
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn add_words(&mut self, text: &str) {
        let words = text.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
        self.0.extend(words.map(str::to_owned));
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|mention| name == mention)
    }
}

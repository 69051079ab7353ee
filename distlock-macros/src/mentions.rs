//! Which names the arguments of the attribute use.

use proc_macro2::{TokenStream, TokenTree};

/// The words in some tokens that can be variables, and those in the braces of string literals: `format!("{id}")` uses
/// `id`. The names of fields and methods are none.
#[derive(Default)]
pub(crate) struct Mentions(Vec<String>);

impl Mentions {
    pub(crate) fn add(&mut self, tokens: TokenStream) {
        // How many dots stand directly before: behind one is a member, behind two or three the end of a range.
        let mut dots = 0;
        for token in tokens {
            match &token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Ident(ident) if dots != 1 => self.0.push(ident.to_string()),
                TokenTree::Literal(literal) => self.add_formatted(&literal.to_string()),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
            let is_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
            dots = if is_dot { dots + 1 } else { 0 };
        }
    }

    fn add_formatted(&mut self, text: &str) {
        let word = |part: &str| {
            part.split(|letter: char| letter != '_' && !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
        };
        self.0.extend(text.split('{').skip(1).map(word));
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|mention| name == mention)
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::Mentions;

    #[test]
    fn members_and_words_of_a_text_are_no_variables() {
        let mut mentions = Mentions::default();
        mentions.add(quote!(CONFIG.id + hash("name") + order.items[..last] + format!("{total:04}")));
        let found: Vec<_> =
            ["CONFIG", "order", "last", "total"].iter().filter(|name| !mentions.contains(name)).collect();
        assert!(found.is_empty(), "{found:?} are used");
        let found: Vec<_> = ["id", "name", "items", "04"].iter().filter(|name| mentions.contains(name)).collect();
        assert!(found.is_empty(), "{found:?} are not used");
    }
}

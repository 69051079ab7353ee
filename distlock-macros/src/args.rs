//! The syntax of the attribute: `name = value` and flags, with their spans; nothing is judged but names.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Expr, Ident, Lit, Token, token};

use crate::mistakes::Mistakes;
use crate::names::{example, meant, unknown};

#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Slot<Expr>,
    pub(crate) keys: Slot<Expr>,
    pub(crate) global: Slot<()>,
    pub(crate) ttl: Slot<Expr>,
    pub(crate) retry: Slot<Expr>,
    pub(crate) backoff: Slot<Expr>,
    pub(crate) wait: Slot<Expr>,
    pub(crate) watchdog: Slot<Expr>,
    pub(crate) max_hold: Slot<Expr>,
    pub(crate) on_lost: Slot<Expr>,
    pub(crate) or_else: Slot<Expr>,
    pub(crate) lease: Slot<Expr>,
    pub(crate) fencing_token: Slot<Expr>,
    pub(crate) mode: Slot<Expr>,
    pub(crate) permits: Slot<Expr>,
    pub(crate) reentrant: Slot<Expr>,
    pub(crate) manager: Slot<Expr>,
    pub(crate) krate: Slot<Expr>,
    pub(crate) mistakes: Mistakes,
}

/// An argument as it was written.
pub(crate) struct Given<T> {
    pub(crate) name: Ident,
    pub(crate) value: T,
}

/// The place of one argument, which can be filled once.
#[derive(Default)]
pub(crate) enum Slot<T> {
    #[default]
    Empty,
    /// The argument was tried, and what is wrong with it is already said.
    Spoiled,
    Filled(Given<T>),
}

impl<T> Slot<T> {
    fn fill(&mut self, name: Ident, value: T, mistakes: &mut Mistakes) {
        if let Self::Filled(_) = self {
            mistakes.under(&name, format!("`{name}` is given twice; keep one of them"));
        } else {
            *self = Self::Filled(Given { name, value });
        }
    }

    fn spoil(&mut self) {
        if let Self::Empty = self {
            *self = Self::Spoiled;
        }
    }

    pub(crate) fn given(self) -> Option<Given<T>> {
        match self {
            Self::Filled(given) => Some(given),
            Self::Empty | Self::Spoiled => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Args {
    /// Reads all arguments, past those that are wrong.
    pub(crate) fn read(tokens: TokenStream) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            args = Self::read_all(input);
            Ok(())
        };
        // What brackets hold beyond what was read is told at the end, and spoils nothing else. It may be told already.
        if let Err(error) = read.parse2(with_precedence(tokens))
            && args.mistakes.is_empty()
        {
            args.mistakes.push(error);
        }
        args
    }

    fn read_all(input: ParseStream<'_>) -> Self {
        let mut args = Self::default();
        while !input.is_empty() {
            if let Err(error) = args.read_one(input) {
                args.mistakes.push(error);
                skip_argument(input);
            }
            let _: Result<Token![,], Error> = input.parse();
        }
        args
    }

    fn read_one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Lit) {
            self.key.spoil();
            let value: Lit = input.parse()?;
            let shown = value.to_token_stream();
            let message = format!("arguments have names here; write `key = {shown}`");
            return Err(Error::new_spanned(value, message));
        }
        // A raw spelling is of the same name.
        let name = input.call(Ident::parse_any)?.unraw();
        let read = self.read_named(&name, input);
        if read.is_err() {
            self.spoil(&name);
        }
        read
    }

    fn read_named(&mut self, name: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        let text = name.to_string();
        if text == "global" {
            // With a value it is meant, too, and the key must not be told that it lacks a placeholder.
            self.global.fill(name.clone(), (), &mut self.mistakes);
            flag(name, input)?;
        } else if let Some(slot) = self.slot(&text) {
            let mut mistakes = Mistakes::default();
            slot.fill(name.clone(), value(name, input)?, &mut mistakes);
            mistakes.or(())?;
        } else {
            return Err(Error::new_spanned(name, unknown(&text)));
        }
        end_of_argument(input)
    }

    fn slot(&mut self, name: &str) -> Option<&mut Slot<Expr>> {
        Some(match name {
            "key" => &mut self.key,
            "keys" => &mut self.keys,
            "ttl" => &mut self.ttl,
            "retry" => &mut self.retry,
            "backoff" => &mut self.backoff,
            "wait" => &mut self.wait,
            "watchdog" => &mut self.watchdog,
            "max_hold" => &mut self.max_hold,
            "on_lost" => &mut self.on_lost,
            "or_else" => &mut self.or_else,
            "lease" => &mut self.lease,
            "fencing_token" => &mut self.fencing_token,
            "mode" => &mut self.mode,
            "permits" => &mut self.permits,
            "reentrant" => &mut self.reentrant,
            "manager" => &mut self.manager,
            "crate" => &mut self.krate,
            _ => return None,
        })
    }

    /// Takes the argument for tried, so that nobody is told that what they misspelled is also missing.
    fn spoil(&mut self, name: &Ident) {
        let text = name.to_string();
        let meant = meant(&text).unwrap_or(&text);
        if let Some(slot) = self.slot(meant) {
            slot.spoil();
        }
    }
}

/// The tokens with parentheses around each operation that came through a macro as `$e:expr`: nothing else would keep
/// `$e * 2` from meaning `id + 1 * 2`.
fn with_precedence(tokens: TokenStream) -> TokenStream {
    let kept = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let operates = group.delimiter() == Delimiter::None
                && matches!(
                    syn::parse2(group.stream()),
                    Ok(Expr::Assign(_) | Expr::Binary(_) | Expr::Cast(_) | Expr::Range(_) | Expr::Unary(_))
                );
            let delimiter = if operates { Delimiter::Parenthesis } else { group.delimiter() };
            let mut kept = Group::new(delimiter, with_precedence(group.stream()));
            kept.set_span(group.span());
            kept.into()
        }
        token => token,
    });
    kept.collect()
}

fn value(name: &Ident, input: ParseStream<'_>) -> syn::Result<Expr> {
    let example = example(&name.to_string());
    let message = format!("`{name}` needs a value, as in `{name} = {example}`");
    if !input.peek(Token![=]) || input.peek(Token![==]) {
        return Err(Error::new_spanned(name, message));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new_spanned(name, message));
    }
    Expr::parse(input).map(handed_on)
}

/// The value without the group that a `macro_rules!` puts around what it hands on, as in `crate = $path`.
fn handed_on(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => handed_on(*group.expr),
        value => value,
    }
}

fn flag(name: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
    if input.peek(Token![=]) || input.peek(token::Paren) {
        let message = format!("`{name}` has no value; write `{name}` alone, or leave it out");
        return Err(Error::new_spanned(name, message));
    }
    Ok(())
}

fn end_of_argument(input: ParseStream<'_>) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    Err(input.error("expected a `,` before the next argument"))
}

fn skip_argument(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        let _: Result<TokenTree, Error> = input.parse();
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::{Delimiter, Group, TokenTree};
    use quote::{ToTokens, quote};

    use super::{Args, Slot};

    fn messages(tokens: proc_macro2::TokenStream) -> Vec<String> {
        match Args::read(tokens).mistakes.or(()) {
            Ok(()) => Vec::new(),
            Err(error) => error.into_iter().map(|error| error.to_string()).collect(),
        }
    }

    #[test]
    fn values_may_hold_commas_of_their_own() {
        let tokens = quote!(key = join::<A, B>(a, b), or_else = |error| error, ttl = "1s");
        let args = Args::read(tokens);
        assert!(matches!(args.key, Slot::Filled(_)));
        assert!(matches!(args.or_else, Slot::Filled(_)));
        assert!(matches!(args.ttl, Slot::Filled(_)));
        assert!(args.mistakes.or(()).is_ok());
    }

    #[test]
    fn every_mistake_is_reported_and_the_rest_is_read() {
        let tokens = quote!(key = "a", key = "b", timeout = "3s", retry, ttl = 1 2, global = true);
        assert_eq!(
            messages(tokens),
            [
                "`key` is given twice; keep one of them",
                "unknown argument `timeout`; how long the lease lasts is `ttl`, how long to wait for the lock is `wait`, how \
                 long to hold it at most is `max_hold`",
                "`retry` needs a value, as in `retry = 3`",
                "expected a `,` before the next argument",
                "`global` has no value; write `global` alone, or leave it out",
            ]
        );
    }

    #[test]
    fn a_name_in_raw_spelling_is_the_name() {
        let args = Args::read(quote!(r#key = "a", r#global));
        assert!(matches!((&args.key, &args.global), (Slot::Filled(_), Slot::Filled(_))));
        assert_eq!(messages(quote!(r#key = "a", key = "b")), ["`key` is given twice; keep one of them"]);
        assert_eq!(messages(quote!(r#retry)), ["`retry` needs a value, as in `retry = 3`"]);
    }

    #[test]
    fn a_value_may_come_through_macros() -> syn::Result<()> {
        let grouped = |tokens| TokenTree::from(Group::new(Delimiter::None, tokens));
        let path = grouped(quote!(my::distlock));
        let again = grouped(path.clone().into());
        for value in [path, again] {
            let args = Args::read(quote!(crate = #value));
            let krate = args.krate.given().map(|given| given.value.to_token_stream().to_string());
            assert_eq!(krate.as_deref(), Some("my :: distlock"));
            args.mistakes.or(())?;
        }
        Ok(())
    }

    #[test]
    fn what_brackets_hold_too_much_is_told_and_the_rest_is_read() {
        let args = Args::read(quote!(key = "a", or_else = |_| f(3 4), ttl = "1s"));
        assert!(matches!((&args.key, &args.ttl), (Slot::Filled(_), Slot::Filled(_))));
        let told = messages(quote!(key = "a", or_else = |_| f(3 4), ttl = "1s"));
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn an_operation_from_a_macro_stays_one() {
        let sum = TokenTree::from(Group::new(Delimiter::None, quote!(id + 1)));
        let args = Args::read(quote!(key = #sum * 2));
        assert!(matches!(args.key, Slot::Filled(given) if given.value.to_token_stream().to_string() == "(id + 1) * 2"));
    }

    #[test]
    fn a_key_without_its_name_is_not_also_missing() {
        let args = Args::read(quote!("order:<id>"));
        assert!(!args.key.is_empty());
        assert_eq!(args.mistakes.or(()).map_err(|error| error.into_iter().count()), Err(1));
    }
}

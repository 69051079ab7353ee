//! The mistakes found so far: all of them are reported at once, each at its own tokens.

use proc_macro2::Span;
use quote::ToTokens;
use syn::Error;

#[derive(Default)]
pub(crate) struct Mistakes(Option<Error>);

impl Mistakes {
    /// Notes a mistake under all of `tokens`.
    pub(crate) fn under(&mut self, tokens: &impl ToTokens, message: impl AsRef<str>) {
        self.push(Error::new_spanned(tokens, message.as_ref()));
    }

    /// Notes something missing, for which there are no tokens.
    pub(crate) fn missing(&mut self, message: impl AsRef<str>) {
        self.push(Error::new(Span::call_site(), message.as_ref()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            None => self.0 = Some(error),
            Some(earlier) => earlier.combine(error),
        }
    }

    /// The error that holds all of them, or `value` if there is none.
    pub(crate) fn or<T>(self, value: T) -> syn::Result<T> {
        match self.0 {
            None => Ok(value),
            Some(error) => Err(error),
        }
    }
}

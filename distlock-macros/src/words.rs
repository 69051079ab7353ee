//! The options whose values are words: `on_lost = finish`, `mode = read`. The words are no variables.

use syn::Expr;

use crate::options::{Literal, Value};
use crate::suggest;

/// What a word stands for: a variant of `OnLost` or of `Mode`.
#[derive(Clone, Copy, PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Word {
    Cancel,
    Finish,
    Exclusive,
    Read,
    Write,
}

/// The words of one option.
struct Words {
    option: &'static str,
    listed: &'static str,
    /// Each with what it stands for, and with what other libraries, and habit, call that.
    known: &'static [(&'static str, Word, &'static [&'static str])],
}

const ON_LOST: Words = Words {
    option: "on_lost",
    listed: "`cancel` or `finish`",
    known: &[("cancel", Word::Cancel, &[]), ("finish", Word::Finish, &[])],
};

const MODE: Words = Words {
    option: "mode",
    listed: "`exclusive`, `read` or `write`",
    known: &[
        ("exclusive", Word::Exclusive, &["mutex", "single", "unique", "x"]),
        ("read", Word::Read, &["reader", "readers", "readonly", "read_only", "share", "shared", "r"]),
        // Who may read and write shares with nobody.
        ("write", Word::Write, &["writer", "writers", "readwrite", "read_write", "rw", "w"]),
    ],
};

pub(crate) fn on_lost(value: &Expr) -> Result<Value, String> {
    ON_LOST.judge(value).map(Value::Word)
}

pub(crate) fn mode(value: &Expr) -> Result<Value, String> {
    MODE.judge(value).map(Value::Word)
}

/// The mode that goes by `name`, here or elsewhere.
pub(crate) fn mode_called(name: &str) -> Option<&'static str> {
    MODE.called(name)
}

impl Words {
    fn judge(&self, value: &Expr) -> Result<Word, String> {
        let path = match value {
            Expr::Path(path) => Some(&path.path),
            _ => None,
        };
        let ident = path.and_then(|path| path.get_ident());
        let found = self.known.iter().find(|(word, ..)| ident.is_some_and(|ident| ident == word));
        if let Some((_, word, _)) = found {
            return Ok(*word);
        }
        // `OnLost::Finish` is how the runtime spells it, and some will put it into quotes.
        let last = path.and_then(|path| path.segments.last());
        let last = last.map(|last| last.ident.to_string());
        let text = Literal::of(value).and_then(|literal| literal.text());
        let written = last.or(text).unwrap_or_default().to_lowercase();
        let Self { option, listed, .. } = self;
        let guess = self.meant(&written).map(|meant| format!("; did you mean `{option} = {meant}`?"));
        let guess = guess.unwrap_or_default();
        Err(format!("`{option}` is {listed}{guess}"))
    }

    fn meant(&self, written: &str) -> Option<&'static str> {
        let words = self.known.iter().map(|(word, ..)| *word);
        self.called(written).or_else(|| suggest::nearest(written, words))
    }

    fn called(&self, name: &str) -> Option<&'static str> {
        let called = self.known.iter().find(|(word, _, aliases)| *word == name || aliases.contains(&name));
        called.map(|(word, ..)| *word)
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::{MODE, ON_LOST, Word};

    #[test]
    fn a_word_stands_for_itself() {
        assert_eq!(ON_LOST.judge(&parse_quote!(cancel)), Ok(Word::Cancel));
        assert_eq!(ON_LOST.judge(&parse_quote!(finish)), Ok(Word::Finish));
        assert_eq!(MODE.judge(&parse_quote!(exclusive)), Ok(Word::Exclusive));
        assert_eq!(MODE.judge(&parse_quote!(read)), Ok(Word::Read));
        assert_eq!(MODE.judge(&parse_quote!(write)), Ok(Word::Write));
    }

    #[test]
    fn a_mode_is_guessed_from_how_others_write_it() {
        let table: [(syn::Expr, _); 12] = [
            (parse_quote!("read"), "read"),
            (parse_quote!(Mode::Read), "read"),
            (parse_quote!(distlock::Mode::Exclusive), "exclusive"),
            (parse_quote!(READ), "read"),
            (parse_quote!(raed), "read"),
            (parse_quote!(shared), "read"),
            (parse_quote!("Shared"), "read"),
            (parse_quote!(reader), "read"),
            (parse_quote!(writer), "write"),
            (parse_quote!(rw), "write"),
            (parse_quote!(exlusive), "exclusive"),
            (parse_quote!(mutex), "exclusive"),
        ];
        for (written, meant) in table {
            let message = format!("`mode` is `exclusive`, `read` or `write`; did you mean `mode = {meant}`?");
            assert_eq!(MODE.judge(&written), Err(message));
        }
    }

    #[test]
    fn what_is_like_no_word_is_not_guessed() {
        for written in
            [parse_quote!(3), parse_quote!(true), parse_quote!(upgradable), parse_quote!(mode), parse_quote!(f())]
        {
            assert_eq!(MODE.judge(&written), Err("`mode` is `exclusive`, `read` or `write`".to_owned()));
        }
    }
}

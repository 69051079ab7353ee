//! The grammar of key templates, `"order:<order.id>:{shard:02}"`.
//!
//! `<` and `{` open a placeholder, and their doubles stand for themselves, as `>>` and `}}` do. A placeholder ends at
//! the first `>` or `}` before which an expression is complete, so that `<order.items::<u8>()>` ends where it seems to
//! end. (`<a > b>` ends too early; `{a > b}` doesn't.) What follows the last single `:` is a format, unless all of it
//! is an expression without that.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, LitStr, Token};

use crate::hygiene;

pub(crate) enum Piece {
    Literal(String),
    Placeholder(Placeholder),
}

pub(crate) struct Placeholder {
    /// What stands between the brackets.
    pub(crate) text: String,
    /// With its brackets, to be named in a message: the parts of a literal have no spans.
    pub(crate) shown: String,
    pub(crate) expr: Expr,
    /// `{}`, or `{:04}`.
    pub(crate) format: LitStr,
}

/// The pieces, in which no two literals follow each other, and all that is wrong with the template.
///
/// The expressions are where the literal is, but a macro's: see [`hygiene`].
pub(crate) fn parse(template: &str, span: Span) -> (Vec<Piece>, Vec<String>) {
    let mut parser = Parser { rest: template, span, literal: String::new(), pieces: Vec::new(), problems: Vec::new() };
    while let Some(first) = parser.rest.chars().next() {
        parser.step(first);
    }
    parser.end_literal();
    (parser.pieces, parser.problems)
}

struct Parser<'a> {
    rest: &'a str,
    span: Span,
    literal: String,
    pieces: Vec<Piece>,
    problems: Vec<String>,
}

impl<'a> Parser<'a> {
    fn step(&mut self, first: char) {
        let (head, tail) = self.rest.split_at(first.len_utf8());
        let special = "<>{}".contains(first);
        if special && let Some(rest) = tail.strip_prefix(first) {
            self.literal.push(first);
            self.rest = rest;
        } else if special && let Some(close) = closing(first) {
            self.placeholder(tail, first, close);
        } else if special {
            self.problem(format!(
                "`{first}` closes no placeholder in the key; write `{first}{first}` for the character itself"
            ));
            self.rest = tail;
        } else {
            self.literal.push_str(head);
            self.rest = tail;
        }
    }

    fn placeholder(&mut self, tail: &'a str, open: char, close: char) {
        let mut first_failure = None;
        for (end, _) in tail.match_indices(close) {
            let (text, rest) = (&tail[..end], &tail[end + close.len_utf8()..]);
            match self.read(text, format!("{open}{text}{close}")) {
                Ok(placeholder) => {
                    self.rest = rest;
                    return self.push(placeholder);
                }
                Err(problem) => first_failure = first_failure.or(Some((problem, rest))),
            }
        }
        let (problem, rest) = first_failure.unwrap_or_else(|| {
            let problem = format!(
                "`{open}{tail}` is not closed in the key; add `{close}`, or write `{open}{open}` for the character itself"
            );
            (problem, "")
        });
        self.problem(problem);
        self.rest = rest;
    }

    fn read(&self, text: &str, shown: String) -> Result<Placeholder, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err(format!(
                "the placeholder `{shown}` in the key is empty; name a parameter, as in `{{id}}` or `<id>`"
            ));
        }
        let (expr, format) = match (self.expression(text), split_format(text)) {
            (Ok(expr), _) => (expr, "{}".to_owned()),
            (Err(error), None) => return Err(no_expression(&shown, &error)),
            (Err(_), Some((value, format))) => match self.expression(value) {
                Ok(expr) if is_format(format) => (expr, format!("{{:{format}}}")),
                Ok(_) => return Err(no_format(&shown, format)),
                Err(error) => return Err(no_expression(&shown, &error)),
            },
        };
        let format = LitStr::new(&format, Span::mixed_site().located_at(self.span));
        Ok(Placeholder { text: text.to_owned(), shown, expr, format })
    }

    fn expression(&self, text: &str) -> syn::Result<Expr> {
        match syn::parse2(hygiene::ours(LitStr::new(text, self.span).parse()?))? {
            // It would name an argument of the format in place of making a value.
            Expr::Assign(_) => Err(syn::Error::new(self.span, "an assignment has no value")),
            expr => Ok(expr),
        }
    }

    fn push(&mut self, placeholder: Placeholder) {
        if let (true, Some(sign)) = (placeholder.shown.starts_with('{'), self.literal.chars().last())
            && "$#".contains(sign)
        {
            let (shown, text) = (&placeholder.shown, &placeholder.text);
            self.problem(format!(
                "`{sign}{shown}` in the key is a placeholder of other languages; write `{shown}`, or `{sign}<{text}>` if the \
                 `{sign}` belongs to the key"
            ));
        }
        self.end_literal();
        if let Some(Piece::Placeholder(before)) = self.pieces.last() {
            let (before, after) = (&before.shown, &placeholder.shown);
            self.problem(format!(
                "there must be something between `{before}` and `{after}` in the key, as in `{before}:{after}`, or \
                 different values would make the same key"
            ));
        }
        self.pieces.push(Piece::Placeholder(placeholder));
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            let literal = std::mem::take(&mut self.literal);
            self.pieces.push(Piece::Literal(literal));
        }
    }

    fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }
}

fn closing(open: char) -> Option<char> {
    match open {
        '<' => Some('>'),
        '{' => Some('}'),
        _ => None,
    }
}

fn no_expression(shown: &str, error: &syn::Error) -> String {
    let name = shown.get(1..shown.len().saturating_sub(1)).unwrap_or_default();
    let is_keyword = Ident::parse_any.parse_str(name).is_ok() && syn::parse_str::<Ident>(name).is_err();
    if is_keyword {
        return format!(
            "`{name}` in the placeholder `{shown}` in the key is a keyword; a parameter is called `r#{name}`"
        );
    }
    format!("the placeholder `{shown}` in the key is not an expression: {error}")
}

fn no_format(shown: &str, format: &str) -> String {
    format!(
        "the placeholder `{shown}` in the key has the unknown format `{format}`; formats are as in `{{:04}}` or `{{:?}}`"
    )
}

/// Splits at the last `:` that has no other next to it.
fn split_format(text: &str) -> Option<(&str, &str)> {
    let single = |at: &usize| {
        let (before, after) = (&text[..*at], &text[at + 1..]);
        !before.ends_with(':') && !after.starts_with(':')
    };
    let at = text.rmatch_indices(':').map(|(at, _)| at).find(single)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Whether `format` is `[[fill]align][sign]['#']['0'][width]['.' precision][type]` as `std::fmt` has it, without
/// widths that are arguments, and without pointers, which no two processes have in common.
fn is_format(format: &str) -> bool {
    let rest = after_alignment(format);
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let rest = rest.strip_prefix('#').unwrap_or(rest);
    let rest = after_digits(rest);
    let rest = match rest.strip_prefix('.') {
        Some(precision) if after_digits(precision) == precision => return false,
        Some(precision) => after_digits(precision),
        None => rest,
    };
    let types = ["", "?", "x?", "X?", "x", "X", "o", "b", "e", "E"];
    !format.is_empty() && types.contains(&rest)
}

fn after_alignment(format: &str) -> &str {
    let aligned = |text: &'_ str| text.starts_with(['<', '^', '>']);
    let mut letters = format.chars();
    let filled = letters.next().map(|_| letters.as_str());
    match filled {
        Some(rest) if aligned(rest) => &rest[1..],
        Some(rest) if aligned(format) => rest,
        _ => format,
    }
}

fn after_digits(format: &str) -> &str {
    format.trim_start_matches(|letter: char| letter.is_ascii_digit())
}

impl Placeholder {
    /// The lone names that must be variables for the expression to compile, with `self`.
    ///
    /// Only what is certain: names that a closure, a `match` or a block may bind, macros, and functions that are
    /// called, are left to the compiler.
    pub(crate) fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.expr, &mut names);
        names
    }
}

fn collect(expr: &Expr, names: &mut Vec<String>) {
    match expr {
        Expr::Path(path) => {
            let ident = path.path.get_ident().map(ToString::to_string);
            names.extend(ident.filter(|name| !name.starts_with(char::is_uppercase)));
        }
        Expr::Field(field) => collect(&field.base, names),
        Expr::MethodCall(call) => {
            collect(&call.receiver, names);
            collect_all(&call.args, names);
        }
        Expr::Call(call) => collect_all(&call.args, names),
        Expr::Index(index) => {
            collect(&index.expr, names);
            collect(&index.index, names);
        }
        Expr::Binary(binary) => {
            collect(&binary.left, names);
            collect(&binary.right, names);
        }
        Expr::Unary(unary) => collect(&unary.expr, names),
        Expr::Reference(reference) => collect(&reference.expr, names),
        Expr::Cast(cast) => collect(&cast.expr, names),
        Expr::Paren(paren) => collect(&paren.expr, names),
        Expr::Tuple(tuple) => collect_all(&tuple.elems, names),
        _ => {}
    }
}

fn collect_all(exprs: &Punctuated<Expr, Token![,]>, names: &mut Vec<String>) {
    for expr in exprs {
        collect(expr, names);
    }
}

#[cfg(test)]
mod tests;

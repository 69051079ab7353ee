//! Which names the arguments of the attribute use.

use proc_macro2::{Delimiter, Group, Literal, Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;

/// The words in some tokens that can be variables, and those in the braces of a macro's text: `format!("{id}")` uses
/// `id`.
///
/// It reads tokens, since arguments may hold macros. A name that is taken for used is touched, which does no harm, unless
/// nothing else makes the key differ from call to call. So what looks like a variable and is none is left out: members,
/// paths, fields of a struct's literal, a closure's own parameters and a block's own variables.
#[derive(Default)]
pub(crate) struct Mentions(Vec<String>);

/// What is known of the place where some tokens stand.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Whether only what is certain counts.
    strict: bool,
    /// Whether a macro sees the string literals, and may look for names in their braces.
    formats: bool,
    /// Whether these are, perhaps, the fields of a struct's literal.
    fields: bool,
    /// The names that mean something else here.
    bound: &'a [String],
}

impl Mentions {
    pub(crate) fn add(&mut self, tokens: TokenStream) {
        self.read(&flat(tokens), Place { strict: false, formats: false, fields: false, bound: &[] });
    }

    /// The same, without what a macro may leave as it is: only of those that format, the text counts.
    pub(crate) fn add_what_varies(&mut self, tokens: TokenStream) {
        self.read(&flat(tokens), Place { strict: true, formats: false, fields: false, bound: &[] });
    }

    pub(crate) fn extend(&mut self, more: Mentions) {
        self.0.extend(more.0);
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|mention| name.trim_start_matches("r#") == mention)
    }

    fn read(&mut self, tokens: &[TokenTree], place: Place<'_>) {
        let mut at = 0;
        while let (before, [token, after @ ..]) = tokens.split_at(at) {
            at += 1;
            match token {
                TokenTree::Group(group) => self.read_group(group, before, place),
                TokenTree::Ident(word) if word == "let" && starts_statement(before) => {
                    return self.read_let(after, place);
                }
                TokenTree::Ident(word) if is_variable(before, after, place) => {
                    self.push(word.unraw().to_string(), place.bound);
                }
                TokenTree::Literal(literal) if place.formats => self.read_text(literal, place.bound),
                TokenTree::Punct(_) if is(token, '|') && starts_operand(before) => {
                    at += self.read_closure(after, place);
                }
                // The second half of an `||` starts no closure.
                TokenTree::Punct(_) if is(token, '|') && after.first().is_some_and(|next| is(next, '|')) => at += 1,
                _ => {}
            }
        }
    }

    fn push(&mut self, name: String, bound: &[String]) {
        if !bound.contains(&name) {
            self.0.push(name);
        }
    }

    fn read_group(&mut self, group: &Group, before: &[TokenTree], place: Place<'_>) {
        let inner = flat(group.stream());
        let called = matches!(before, [.., TokenTree::Ident(_)]) && group.delimiter() != Delimiter::Brace;
        let fields = group.delimiter() == Delimiter::Brace
            && before.last().is_some_and(|last| is(last, '>') || matches!(last, TokenTree::Ident(_)));
        match macro_name(before).as_deref() {
            // Nothing in it is evaluated.
            Some("concat" | "stringify") => {}
            Some("format" | "format_args") => self.read_format(&inner, place),
            Some(name) => {
                let formats = name != "vec" && (!place.strict || name.contains("format"));
                self.read(&inner, Place { formats, fields: false, ..place });
            }
            None => self.read(&inner, Place { formats: place.formats && !called, fields, ..place }),
        }
    }

    /// Of `"{a}{b}", &c, b = 1` the names `a` and `c`. Only the first argument is a format.
    fn read_format(&mut self, arguments: &[TokenTree], place: Place<'_>) {
        let place = Place { formats: false, fields: false, ..place };
        let mut bound = place.bound.to_vec();
        for argument in arguments.split(|token| is(token, ',')) {
            let value = match argument {
                [TokenTree::Ident(name), sign, value @ ..]
                    if is(sign, '=') && !value.first().is_some_and(|next| is(next, '=') || is(next, '>')) =>
                {
                    bound.push(name.unraw().to_string());
                    value
                }
                value => value,
            };
            self.read(value, place);
        }
        if let Some(TokenTree::Literal(text)) = arguments.first() {
            self.read_text(text, &bound);
        }
    }

    /// Of `"{a:b$} {{c}}"` the names `a` and `b`.
    fn read_text(&mut self, literal: &Literal, bound: &[String]) {
        let text = literal.to_string().replace("{{", "");
        if !text.starts_with(['"', 'r']) {
            return;
        }
        let other = |letter: char| letter != '_' && !letter.is_alphanumeric();
        for inside in text.split('{').skip(1).filter_map(|part| part.split('}').next()) {
            let (argument, format) = inside.split_once(':').unwrap_or((inside, ""));
            self.push(argument.trim_start().split(other).next().unwrap_or_default().to_owned(), bound);
            for (width, _) in format.match_indices('$').map(|(end, _)| format.split_at(end)) {
                let name = width.rsplit(other).next().unwrap_or_default();
                self.push(name.trim_start_matches(|letter: char| letter.is_ascii_digit()).to_owned(), bound);
            }
        }
    }

    /// Reads the rest of `|a, b: u8| body, ..` up to the end of the body, and returns its length.
    fn read_closure(&mut self, rest: &[TokenTree], place: Place<'_>) -> usize {
        let head = rest.iter().position(|token| is(token, '|')).unwrap_or(rest.len());
        let (parameters, body) = rest.split_at(head);
        let end = body.iter().position(|token| is(token, ',') || is(token, ';')).unwrap_or(body.len());
        let mut bound = place.bound.to_vec();
        parameters.split(|token| is(token, ',')).for_each(|parameter| bound.extend(bindings(parameter)));
        let (_, body) = rest.split_at((head + 1).min(rest.len()));
        let (body, _) = body.split_at(end.saturating_sub(1));
        self.read(body, Place { bound: &bound, ..place });
        head + end
    }

    /// Reads the rest of `let pattern = value; ..` and of the block that it stands in.
    fn read_let(&mut self, rest: &[TokenTree], place: Place<'_>) {
        let end = rest.iter().position(|token| is(token, ';')).unwrap_or(rest.len());
        let (local, rest) = rest.split_at(end);
        let (pattern, value) =
            local.split_at(local.iter().position(|token| is_alone(token, '=')).unwrap_or(local.len()));
        self.read(value, place);
        let bound = [place.bound, &bindings(pattern)].concat();
        self.read(rest, Place { bound: &bound, ..place });
    }
}

/// The names that a pattern binds, before the `:` of its type.
fn bindings(pattern: &[TokenTree]) -> Vec<String> {
    let ends = |at: &usize| is_type_colon(pattern.split_at(*at));
    let (pattern, _) = pattern.split_at((0..pattern.len()).find(ends).unwrap_or(pattern.len()));
    let mut names = Mentions::default();
    names.read(pattern, Place { strict: false, formats: false, fields: false, bound: &[] });
    names.0
}

/// Whether the second part starts with a `:` that is none of a path's.
fn is_type_colon((before, rest): (&[TokenTree], &[TokenTree])) -> bool {
    let doubled = matches!(rest, [first, second, ..] if is(first, ':') && is(second, ':'));
    rest.first().is_some_and(|token| is(token, ':')) && !doubled && !before.last().is_some_and(|last| is(last, ':'))
}

/// Whether the word between these tokens can be a variable.
fn is_variable(before: &[TokenTree], after: &[TokenTree], place: Place<'_>) -> bool {
    let member = matches!(before, [.., last] if is(last, '.')) && !matches!(before, [.., range, _] if is(range, '.'));
    let lifetime = matches!(before, [.., last] if is(last, '\''));
    let path = matches!(before, [.., first, last] if is(first, ':') && is(last, ':'))
        || matches!(after, [first, second, ..] if is(first, ':') && is(second, ':'));
    let field = place.fields && is_type_colon((before, after));
    let called = matches!(after, [sign, TokenTree::Group(_), ..] if is(sign, '!'));
    !(member || lifetime || path || field || called)
}

/// The name of the macro of which the arguments follow.
fn macro_name(before: &[TokenTree]) -> Option<String> {
    match before {
        [.., TokenTree::Ident(name), sign] if is(sign, '!') => {
            // After these, the `!` is an operator.
            let words = ["break", "if", "in", "match", "return", "while"];
            Some(name.to_string()).filter(|name| !words.contains(&name.as_str()))
        }
        _ => None,
    }
}

fn starts_statement(before: &[TokenTree]) -> bool {
    match before {
        [] => true,
        [.., TokenTree::Group(group)] => group.delimiter() == Delimiter::Brace,
        [.., last] => is(last, ';'),
    }
}

/// Whether a value must follow, so that a `|` is not the operator.
fn starts_operand(before: &[TokenTree]) -> bool {
    match before {
        [.., equals, greater] if is(equals, '=') && is(greater, '>') => true,
        [.., TokenTree::Ident(word)] => {
            ["async", "break", "in", "move", "return", "static"].iter().any(|it| word == it)
        }
        [.., TokenTree::Punct(punct)] => !['?', '>'].contains(&punct.as_char()),
        other => other.is_empty(),
    }
}

fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_alone(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign && punct.spacing() == Spacing::Alone)
}

/// The tokens without the groups that a `macro_rules!` puts around what it hands on, which have no brackets.
fn flat(tokens: TokenStream) -> Vec<TokenTree> {
    let flat = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => flat(group.stream()),
        token => vec![token],
    });
    flat.collect()
}

#[cfg(test)]
mod tests;

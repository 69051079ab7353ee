//! Judges the key: a template against the parameters that it may name, or any expression.

use proc_macro2::Span;
use quote::ToTokens;
use syn::{Block, Expr, ExprGroup, ExprLit, ExprParen, ExprReference, Lit, LitStr, Stmt};

use crate::args::{Given, Slot};
use crate::function::Function;
use crate::mentions::Mentions;
use crate::mistakes::Mistakes;
use crate::names::example;
use crate::options::Literal;
use crate::suggest;
use crate::template::{self, Piece, Placeholder};

const NO_TEMPLATE: &str = "this is no template, since it is a part of an expression; write `format!(..)` around it";

/// The bytes that the fixed parts of a key may take up, because the whole may not be longer.
const LONGEST: usize = 1024;

pub(crate) enum Key {
    Template(Vec<Piece>),
    Expression(Expr),
}

/// What a call locks.
pub(crate) enum Keys {
    One(Key),
    /// `keys = ["..", ..]`
    Listed(Vec<Key>),
    /// `keys = expression`
    Expression(Expr),
}

impl Default for Keys {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Keys {
    /// Those that are written one by one.
    pub(crate) fn each(&self) -> &[Key] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Listed(keys) => keys,
            Self::Expression(_) => &[],
        }
    }
}

pub(crate) fn check(
    key: Slot<Expr>,
    keys: Slot<Expr>,
    global: Option<&Given<()>>,
    function: &Function,
    mistakes: &mut Mistakes,
) -> Option<Keys> {
    let missing = key.is_empty() && keys.is_empty();
    match (key.given(), keys.given()) {
        (Some(_), Some(keys)) => {
            mistakes.under(&keys.name, "`key` and `keys` exclude each other; name all keys in `keys`");
            None
        }
        (Some(key), None) => check_one(key, global, function, mistakes).map(Keys::One),
        (None, Some(keys)) => check_all(keys, global, function, mistakes),
        (None, None) if missing => {
            let example = example("key");
            mistakes.missing(format!("`key` is missing: say what is locked, as in `key = {example}`"));
            None
        }
        (None, None) => None,
    }
}

fn check_all(
    Given { name, value: keys }: Given<Expr>,
    global: Option<&Given<()>>,
    function: &Function,
    mistakes: &mut Mistakes,
) -> Option<Keys> {
    match keys {
        Expr::Array(list) if list.elems.is_empty() => {
            mistakes.under(
                &list,
                "`keys` is empty; say what is locked, as in `keys = [\"account:<from>\", \"account:<to>\"]`",
            );
            None
        }
        Expr::Array(list) => {
            let keys = list
                .elems
                .into_iter()
                .map(|key| check_one(Given { name: name.clone(), value: key }, global, function, mistakes));
            // All are looked at, so that all mistakes are found.
            let keys: Vec<Option<Key>> = keys.collect();
            keys.into_iter().collect::<Option<_>>().map(Keys::Listed)
        }
        keys if Literal::of(&keys).is_some() => {
            mistakes.under(&keys, "`keys` takes a list, as in `keys = [\"account:<from>\", \"account:<to>\"]`");
            None
        }
        keys => {
            for text in values(&keys).into_iter().filter(|text| looks_like_template(&text.value(), function)) {
                mistakes.under(text, NO_TEMPLATE);
            }
            one_for_all_by_expression(&keys, global, function, mistakes);
            Some(Keys::Expression(keys))
        }
    }
}

/// The string literals that an expression may have for its value: at the ends of branches and blocks, and in lists.
fn values(expr: &Expr) -> Vec<&LitStr> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => vec![text],
        Expr::Paren(ExprParen { expr, .. })
        | Expr::Group(ExprGroup { expr, .. })
        | Expr::Reference(ExprReference { expr, .. }) => values(expr),
        Expr::Index(index) => values(&index.expr),
        Expr::Array(list) => list.elems.iter().flat_map(values).collect(),
        Expr::Block(block) => last(&block.block),
        Expr::Match(choice) => choice.arms.iter().flat_map(|arm| values(&arm.body)).collect(),
        Expr::If(choice) => {
            let otherwise = choice.else_branch.iter().flat_map(|(_, branch)| values(branch));
            last(&choice.then_branch).into_iter().chain(otherwise).collect()
        }
        _ => Vec::new(),
    }
}

fn last(block: &Block) -> Vec<&LitStr> {
    match block.stmts.last() {
        Some(Stmt::Expr(expr, None)) => values(expr),
        _ => Vec::new(),
    }
}

/// Whether the text has a placeholder with the name of a parameter.
fn looks_like_template(text: &str, function: &Function) -> bool {
    let named = |name: &String| ["<", "{"].iter().any(|open| text.contains(&format!("{open}{name}")));
    function.names().iter().any(named)
}

fn one_for_all_by_expression(key: &Expr, global: Option<&Given<()>>, function: &Function, mistakes: &mut Mistakes) {
    if function.has_params() && global.is_none() && !names_parameter(key, function) {
        mistakes.under(key, one_for_all_calls("the key names no parameter", function));
    }
}

/// Judges a key under the argument `name`. One that is alone must not both vary and be global; of several, each may be
/// either.
fn check_one(
    Given { name, value: key }: Given<Expr>,
    global: Option<&Given<()>>,
    function: &Function,
    mistakes: &mut Mistakes,
) -> Option<Key> {
    let Some(literal) = Literal::of(&key) else {
        for text in values(&key).into_iter().filter(|text| looks_like_template(&text.value(), function)) {
            mistakes.under(text, NO_TEMPLATE);
        }
        one_for_all_by_expression(&key, global, function, mistakes);
        return Some(Key::Expression(key));
    };
    let Some(text) = literal.string() else {
        let message = format!("`{name}` takes templates, as in `\"order:<id>\"`, or expressions");
        mistakes.under(&key, message);
        return None;
    };
    let (pieces, mut problems) = template::parse(&text.value(), text.span());
    if problems.is_empty() {
        problems.extend(too_long_or_empty(&pieces));
    }
    let unknown: Vec<_> = placeholders(&pieces).flat_map(|placeholder| unknown_names(placeholder, function)).collect();
    if problems.is_empty() && unknown.is_empty() {
        problems.extend(one_for_all(&pieces, global.is_some(), function));
    }
    for problem in problems.into_iter().chain(unknown) {
        mistakes.under(text, problem);
    }
    let varying = placeholders(&pieces).find(|placeholder| varies(placeholder, function));
    if let (Some(global), Some(placeholder), true) = (global, varying, name == "key") {
        mistakes.under(&global.name, not_global(placeholder));
    }
    Some(Key::Template(resolved(pieces, name.span(), function)))
}

/// A template names parameters by their spelling.
fn resolved(mut pieces: Vec<Piece>, place: Span, function: &Function) -> Vec<Piece> {
    for piece in &mut pieces {
        if let Piece::Placeholder(placeholder) = piece
            && let Ok(expr) = syn::parse2(function.resolve(placeholder.expr.to_token_stream(), place))
        {
            placeholder.expr = expr;
        }
    }
    pieces
}

/// Whether the placeholder can differ from call to call: it names a parameter or the receiver.
fn varies(placeholder: &Placeholder, function: &Function) -> bool {
    names_parameter(&placeholder.expr, function)
}

fn names_parameter(expr: &Expr, function: &Function) -> bool {
    let mut mentions = Mentions::default();
    mentions.add_what_varies(expr.to_token_stream());
    function.names().iter().any(|name| mentions.contains(name)) || mentions.contains("self")
}

pub(crate) fn placeholders(pieces: &[Piece]) -> impl Iterator<Item = &Placeholder> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Placeholder(placeholder) => Some(placeholder),
        Piece::Literal(_) => None,
    })
}

fn not_global(placeholder: &Placeholder) -> String {
    let shown = &placeholder.shown;
    format!(
        "`global` means one lock for all arguments, but the key has the placeholder `{shown}`; remove one of the two"
    )
}

fn too_long_or_empty(pieces: &[Piece]) -> Option<String> {
    let fixed = pieces.iter().map(|piece| match piece {
        Piece::Literal(text) => text.len(),
        Piece::Placeholder(_) => 0,
    });
    let fixed: usize = fixed.sum();
    if pieces.is_empty() {
        Some("the key is empty; say what is locked, as in `key = \"order:<id>\"`".to_owned())
    } else if fixed > LONGEST {
        Some(format!("the key is too long; it has {fixed} bytes, and at most {LONGEST} are allowed"))
    } else {
        None
    }
}

fn one_for_all(pieces: &[Piece], global: bool, function: &Function) -> Option<String> {
    let varies = placeholders(pieces).any(|placeholder| varies(placeholder, function));
    if pieces.is_empty() || varies || !function.has_params() || global {
        return None;
    }
    let lack = match placeholders(pieces).next() {
        Some(placeholder) => format!("the placeholder `{}` in the key names no parameter", placeholder.shown),
        None => "the key has no placeholder".to_owned(),
    };
    Some(one_for_all_calls(&lack, function))
}

fn one_for_all_calls(lack: &str, function: &Function) -> String {
    let names = function.names();
    let way_out = match names.first() {
        Some(first) => format!("name a parameter, as in `<{first}>`"),
        None => "give a parameter a name, and name it in the key".to_owned(),
    };
    let known = known(&names);
    format!(
        "{lack}, so all calls would take the same lock, whatever their arguments; {way_out}, or add `global` if one lock is \
         meant ({known})"
    )
}

fn unknown_names(placeholder: &Placeholder, function: &Function) -> Vec<String> {
    let names = function.names();
    let variables = placeholder.variables();
    let unknown = variables.iter().filter(|name| match name.as_str() {
        "self" => function.sig.receiver().is_none(),
        name => !names.iter().any(|known| known == name) && !function.has_generic(name),
    });
    let ambiguous = variables.iter().filter(|name| function.is_ambiguous(name));
    let ambiguous = ambiguous.map(|name| ambiguous_name(name, placeholder));
    unknown.map(|name| unknown_name(name, placeholder, &names)).chain(ambiguous).collect()
}

fn ambiguous_name(name: &str, placeholder: &Placeholder) -> String {
    let shown = &placeholder.shown;
    format!(
        "two parameters, of which a macro made one, are called `{name}`, as in the placeholder `{shown}`; rename one"
    )
}

fn unknown_name(name: &str, placeholder: &Placeholder, names: &[String]) -> String {
    if name == "self" {
        return format!("the function has no `self` for the placeholder `{}` in the key", placeholder.shown);
    }
    let guess = suggest::nearest(name, names.iter().map(String::as_str));
    let guess = guess.map(|meant| format!("; did you mean `{meant}`?"));
    let (guess, shown, known) = (guess.unwrap_or_default(), &placeholder.shown, known(names));
    format!("there is no `{name}` for the placeholder `{shown}` in the key ({known}){guess}")
}

fn known(names: &[String]) -> String {
    let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match list.as_slice() {
        [] => "the function has no parameter with a name".to_owned(),
        [name] => format!("the only parameter is {name}"),
        names => format!("the parameters are {}", names.join(", ")),
    }
}

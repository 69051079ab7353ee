//! Judges the arguments: what is a literal is checked here, what is an expression is left to the compiler.

use quote::ToTokens;
use syn::{Error, Expr, Ident, Lit, Path, parse_quote};

use crate::args::{Args, Given, Slot};
use crate::duration::millis;
use crate::function::Function;
use crate::key::{self, Key, Keys};
use crate::mentions::Mentions;
use crate::mistakes::Mistakes;
use crate::names::example;
use crate::options::{self, Literal, Value, option};
use crate::returning::{self, Shape};
use crate::words::{self, Word};

/// What the attribute says, checked.
pub(crate) struct Spec {
    pub(crate) krate: Path,
    pub(crate) keys: Keys,
    pub(crate) manager: Option<Expr>,
    /// The options that are given, each under the name of its method.
    pub(crate) options: Vec<(Ident, Value)>,
    pub(crate) lease: Option<Ident>,
    pub(crate) fencing_token: Option<Ident>,
    pub(crate) or_else: Option<Expr>,
}

impl Spec {
    /// The names that are used before the body runs.
    pub(crate) fn mentions(&self) -> Mentions {
        let mut mentions = Mentions::default();
        mentions.add(self.manager.to_token_stream());
        if let Keys::Expression(keys) = &self.keys {
            mentions.add(keys.to_token_stream());
        }
        for key in self.keys.each() {
            match key {
                Key::Expression(expr) => mentions.add(expr.to_token_stream()),
                Key::Template(pieces) => {
                    key::placeholders(pieces).for_each(|placeholder| mentions.add(placeholder.expr.to_token_stream()));
                }
            }
        }
        for (_, value) in &self.options {
            if let Value::Expression(expr) = value {
                mentions.add(expr.to_token_stream());
            }
        }
        mentions
    }

    /// The names that its arguments use.
    pub(crate) fn all_mentions(&self) -> Mentions {
        let mut mentions = self.mentions();
        mentions.add(self.or_else.to_token_stream());
        mentions
    }
}

pub(crate) fn check(args: Args, function: &Function) -> syn::Result<Spec> {
    let mut mistakes = args.mistakes;
    let keys = key::check(args.key, args.keys, args.global.given().as_ref(), function, &mut mistakes);
    sharing(&args.mode, &args.permits, &args.fencing_token, &mut mistakes);
    let options = [
        option(args.ttl, options::ttl, &mut mistakes),
        option(args.retry, options::retry, &mut mistakes),
        option(args.backoff, options::backoff, &mut mistakes),
        option(args.wait, options::wait, &mut mistakes),
        option(args.watchdog, options::watchdog, &mut mistakes),
        option(args.max_hold, options::max_hold, &mut mistakes),
        option(args.permits, options::permits, &mut mistakes),
        option(args.reentrant, options::reentrant, &mut mistakes),
        word(args.on_lost, words::on_lost, &mut mistakes),
        word(args.mode, words::mode, &mut mistakes),
    ];
    let options: Vec<(Ident, Value)> = options.into_iter().flatten().collect();
    options::contradictions(&options, &mut mistakes);
    let spec = Spec {
        krate: checked(args.krate, krate, &mut mistakes).unwrap_or_else(|| parse_quote!(::distlock)),
        // Without a key there is a mistake, and then nobody sees what stands in its place.
        keys: keys.unwrap_or_default(),
        manager: checked(args.manager, expression, &mut mistakes),
        options,
        lease: checked(args.lease, |lease| binding(lease, function), &mut mistakes),
        fencing_token: checked(args.fencing_token, |token| binding(token, function), &mut mistakes),
        or_else: checked(args.or_else, closure, &mut mistakes),
    };
    mistakes.or(spec)
}

/// What can't be said together of who holds the lock. A value that is wrong in itself does not keep that back, or it would
/// be told only when the value is mended.
fn sharing(mode: &Slot<Expr>, permits: &Slot<Expr>, token: &Slot<Expr>, mistakes: &mut Mistakes) {
    if let (Slot::Filled(_), Slot::Filled(permits)) = (mode, permits) {
        mistakes.under(
            &permits.name,
            "`mode` and `permits` exclude each other; `mode = read` lets any number hold the lock at the same time, \
             `permits` as many as it says",
        );
    }
    let shared_by = match (mode, permits) {
        (_, Slot::Filled(_)) => "permits",
        (Slot::Filled(mode), _) if matches!(words::mode(&mode.value), Ok(Value::Word(Word::Read))) => "mode = read",
        _ => return,
    };
    if let Slot::Filled(token) = token {
        let message = format!(
            "`fencing_token` tells later holders from earlier ones, and with `{shared_by}` there are several at the same \
             time; keep one of them"
        );
        mistakes.under(&token.name, message);
    }
}

fn checked<T>(
    slot: Slot<Expr>,
    check: impl FnOnce(Given<Expr>) -> syn::Result<T>,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let checked = check(slot.given()?);
    checked.map_err(|error| mistakes.push(error)).ok()
}

fn word(
    slot: Slot<Expr>,
    judge: fn(&Expr) -> Result<Value, String>,
    mistakes: &mut Mistakes,
) -> Option<(Ident, Value)> {
    let given = slot.given()?;
    match judge(&given.value) {
        Ok(value) => Some((given.name, value)),
        Err(message) => {
            mistakes.under(&given.value, message);
            None
        }
    }
}

fn closure(Given { name, value }: Given<Expr>) -> syn::Result<Expr> {
    let is_none = matches!(&value, Expr::Path(path) if path.path.is_ident("None"));
    if !is_none {
        return expression(Given { name, value });
    }
    Err(Error::new_spanned(value, format!("`{name}` takes a closure; write `{name} = |_| None`")))
}

fn expression(Given { name, value }: Given<Expr>) -> syn::Result<Expr> {
    if Literal::of(&value).is_none() {
        return Ok(value);
    }
    let example = example(&name.to_string());
    let message = format!("`{name}` takes no literal; write for instance `{name} = {example}`");
    Err(Error::new_spanned(value, message))
}

fn krate(Given { value, .. }: Given<Expr>) -> syn::Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path),
        value => {
            let message = "`crate` takes a path without quotes, as in `crate = my::distlock`";
            Err(Error::new_spanned(value, message))
        }
    }
}

fn binding(Given { name, value }: Given<Expr>, function: &Function) -> syn::Result<Ident> {
    let ident = match &value {
        Expr::Path(path) => path.path.get_ident().filter(|ident| is_name(ident)),
        _ => None,
    };
    let message = match (ident, Literal::of(&value)) {
        (Some(ident), _) if function.names().contains(&ident.to_string()) => {
            format!("`{ident}` would hide the parameter `{ident}`; choose another name")
        }
        (Some(ident), _) if function.shape != Shape::Async && !returning::can_use_lease(&function.body, ident) => {
            format!(
                "`{name}` binds a variable in the `async` blocks of a function that returns its future, and none of them \
                 uses `{ident}`; do the work in an `async move {{ .. }}`"
            )
        }
        (Some(ident), _) => return Ok(ident.clone()),
        (None, Some(Literal { lit: Lit::Str(text), .. })) if millis(&text.value()).is_ok() => format!(
            "`{name}` names a variable for the body; for how long the lock is leased is `ttl = \"{}\"`",
            text.value()
        ),
        (None, Some(Literal { lit: Lit::Str(text), .. })) if syn::parse_str::<Ident>(&text.value()).is_ok() => {
            format!("`{name}` takes a name without quotes; write `{name} = {}`", text.value())
        }
        (None, _) => format!("`{name}` takes a name for a variable, as in `{name} = {name}`"),
    };
    Err(Error::new_spanned(value, message))
}

/// What is bound in the body can't have one name for several things: the body would see but one of them.
pub(crate) fn bindings<'a>(specs: impl Iterator<Item = &'a Spec>, mistakes: &mut Mistakes) {
    let mut seen: Vec<&Ident> = Vec::new();
    for bound in specs.flat_map(|spec| spec.lease.iter().chain(&spec.fencing_token)) {
        if seen.contains(&bound) {
            let message = format!("`{bound}` is the name of something else that is bound for the body; choose another");
            mistakes.under(bound, message);
        }
        seen.push(bound);
    }
}

fn is_name(ident: &Ident) -> bool {
    ["self", "Self", "super", "crate"].iter().all(|keyword| ident != keyword)
}

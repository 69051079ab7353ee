//! The options that can be checked while compiling, because they are literals.

use syn::{Expr, Ident, Lit, LitInt, LitStr, UnOp};

use crate::args::{Given, Slot};
use crate::duration::{DAY, delays, millis};
use crate::mistakes::Mistakes;
use crate::words::Word;

const SHORTEST_LEASE: u64 = 100;
const MOST_PERMITS: u32 = 10_000;

pub(crate) enum Value {
    Millis(u64),
    Count(u32),
    Flag(bool),
    /// The first and the longest delay, in milliseconds.
    Delays(u64, u64),
    Word(Word),
    Expression(Expr),
}

/// A literal with the `-` that may stand before it.
pub(crate) struct Literal<'a> {
    negative: bool,
    pub(crate) lit: &'a Lit,
}

impl<'a> Literal<'a> {
    pub(crate) fn of(expr: &'a Expr) -> Option<Self> {
        match expr {
            Expr::Lit(literal) => Some(Self { negative: false, lit: &literal.lit }),
            // What a `macro_rules!` hands on as `$ttl:literal` or `$ttl:expr` comes in a group without brackets.
            Expr::Group(group) => Self::of(&group.expr),
            Expr::Paren(paren) => Self::of(&paren.expr),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
                Some(Self { negative: true, ..Self::of(&unary.expr)? })
            }
            _ => None,
        }
    }

    pub(crate) fn string(&self) -> Option<&'a LitStr> {
        match self.lit {
            Lit::Str(text) if !self.negative => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<String> {
        self.string().map(LitStr::value)
    }
}

/// Judges an option by `judge` if it is a literal.
pub(crate) fn option(
    slot: Slot<Expr>,
    judge: fn(&Literal<'_>) -> Result<Value, String>,
    mistakes: &mut Mistakes,
) -> Option<(Ident, Value)> {
    let Given { name, value } = slot.given()?;
    let judged = Literal::of(&value).map(|literal| judge(&literal));
    match judged {
        None => Some((name, Value::Expression(value))),
        Some(Ok(checked)) => Some((name, checked)),
        Some(Err(message)) => {
            mistakes.under(&value, message);
            None
        }
    }
}

pub(crate) fn ttl(literal: &Literal<'_>) -> Result<Value, String> {
    let millis = duration("ttl", literal)?;
    if !(SHORTEST_LEASE..=DAY).contains(&millis) {
        return Err("`ttl` is out of range; a lease lasts from 100ms to 24h".to_owned());
    }
    Ok(Value::Millis(millis))
}

pub(crate) fn wait(literal: &Literal<'_>) -> Result<Value, String> {
    let millis = duration("wait", literal)?;
    if !(1..=DAY).contains(&millis) {
        return Err("`wait` is out of range; a call waits for 1ms to 24h".to_owned());
    }
    Ok(Value::Millis(millis))
}

pub(crate) fn max_hold(literal: &Literal<'_>) -> Result<Value, String> {
    let millis = duration("max_hold", literal)?;
    if millis < SHORTEST_LEASE {
        return Err("`max_hold` is out of range; it is at least 100ms".to_owned());
    }
    Ok(Value::Millis(millis))
}

fn duration(name: &str, literal: &Literal<'_>) -> Result<u64, String> {
    match (literal.text(), literal.lit) {
        (Some(text), _) => millis(&text).map_err(|problem| format!("`{name}` {problem}")),
        (None, Lit::Int(number)) if !literal.negative => {
            let number = number.base10_digits();
            Err(format!(
                "`{name}` is a duration with its unit; write `{name} = \"{number}ms\"` or `{name} = \"{number}s\"`"
            ))
        }
        _ => Err(format!("`{name}` takes a duration, as in `{name} = \"30s\"`")),
    }
}

pub(crate) fn retry(literal: &Literal<'_>) -> Result<Value, String> {
    match number("retry", "tries", literal)?.base10_parse() {
        _ if literal.negative => Err("`retry` can't be negative; `retry = 0` tries once".to_owned()),
        Ok(count) => Ok(Value::Count(count)),
        Err(_) => Err(format!("`retry` is out of range; it is at most {}", u32::MAX)),
    }
}

pub(crate) fn permits(literal: &Literal<'_>) -> Result<Value, String> {
    match number("permits", "holders", literal)?.base10_parse() {
        _ if literal.negative => Err("`permits` can't be negative; a lock has from 1 to 10,000".to_owned()),
        Ok(0) => Err("`permits = 0` would let nobody hold the lock; a lock has from 1 to 10,000".to_owned()),
        Ok(count) if count <= MOST_PERMITS => Ok(Value::Count(count)),
        _ => Err("`permits` is out of range; a lock has from 1 to 10,000".to_owned()),
    }
}

/// The digits, of whatever sign and size, of a number of what `counted` names.
fn number<'a>(name: &str, counted: &str, literal: &Literal<'a>) -> Result<&'a LitInt, String> {
    match literal.lit {
        Lit::Int(number) if ["", "u32"].contains(&number.suffix()) => Ok(number),
        Lit::Str(text) if text.value().parse::<u32>().is_ok() => {
            let text = text.value();
            Err(format!("`{name}` takes a number without quotes; write `{name} = {text}`"))
        }
        _ => Err(format!("`{name}` takes a whole number of {counted}, as in `{name} = 3`")),
    }
}

pub(crate) fn backoff(literal: &Literal<'_>) -> Result<Value, String> {
    let text =
        literal.text().ok_or("`backoff` takes the first and the longest delay, as in `backoff = \"50ms..800ms\"`")?;
    let (first, longest) = delays(&text).map_err(|problem| format!("`backoff` {problem}"))?;
    Ok(Value::Delays(first, longest))
}

pub(crate) fn watchdog(literal: &Literal<'_>) -> Result<Value, String> {
    flag("watchdog", literal)
}

pub(crate) fn reentrant(literal: &Literal<'_>) -> Result<Value, String> {
    flag("reentrant", literal)
}

fn flag(name: &str, literal: &Literal<'_>) -> Result<Value, String> {
    match literal.lit {
        Lit::Bool(flag) => Ok(Value::Flag(flag.value)),
        _ => Err(format!("`{name}` is `true` or `false`")),
    }
}

/// What can't be said together.
pub(crate) fn contradictions(options: &[(Ident, Value)], mistakes: &mut Mistakes) {
    let find = |wanted: &str| options.iter().find(|(name, _)| name == wanted);
    let Some((max_hold, hold)) = find("max_hold") else {
        return;
    };
    if let (Value::Millis(hold), Some((_, Value::Millis(ttl)))) = (hold, find("ttl"))
        && hold < ttl
    {
        mistakes.under(max_hold, "`max_hold` is shorter than `ttl`; make it at least as long");
    }
    if let Some((_, Value::Flag(false))) = find("watchdog") {
        mistakes.under(
            max_hold,
            "`max_hold` ends the renewing, and with `watchdog = false` there is none; the `ttl` limits the body already",
        );
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::{Literal, Value, permits};

    fn judged(value: &syn::Expr) -> Result<u32, String> {
        match Literal::of(value).map(|literal| permits(&literal)) {
            Some(Ok(Value::Count(count))) => Ok(count),
            Some(Err(message)) => Err(message),
            _ => Err("no number".to_owned()),
        }
    }

    #[test]
    fn a_lock_has_from_1_to_10_000_permits() {
        assert_eq!(judged(&parse_quote!(1)), Ok(1));
        assert_eq!(judged(&parse_quote!(10_000u32)), Ok(10_000));
        for beyond in [parse_quote!(10_001), parse_quote!(5_000_000_000)] {
            assert_eq!(judged(&beyond), Err("`permits` is out of range; a lock has from 1 to 10,000".to_owned()));
        }
    }
}

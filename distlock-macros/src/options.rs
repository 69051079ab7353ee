//! The options that can be checked while compiling, because they are literals.

use syn::{Expr, Ident, Lit, LitStr, UnOp};

use crate::args::{Given, Slot};
use crate::duration::{DAY, delays, millis};
use crate::mistakes::Mistakes;
use crate::words::Word;

const SHORTEST_LEASE: u64 = 100;

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
    let number = match literal.lit {
        Lit::Int(number) if ["", "u32"].contains(&number.suffix()) => number,
        Lit::Str(text) if text.value().parse::<u32>().is_ok() => {
            let text = text.value();
            return Err(format!("`retry` takes a number without quotes; write `retry = {text}`"));
        }
        _ => return Err("`retry` takes a whole number of tries, as in `retry = 3`".to_owned()),
    };
    match number.base10_parse() {
        _ if literal.negative => Err("`retry` can't be negative; `retry = 0` tries once".to_owned()),
        Ok(count) => Ok(Value::Count(count)),
        Err(_) => Err(format!("`retry` is out of range; it is at most {}", u32::MAX)),
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

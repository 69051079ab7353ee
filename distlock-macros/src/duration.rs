//! Durations as they are written in the attribute: `"30s"`, `"1m 30s"`, `"50ms..800ms"`.

use humantime::DurationError;

/// The longest lease, and the longest pause between two tries.
pub(crate) const DAY: u64 = 24 * 60 * 60 * 1000;

/// The milliseconds of a duration with units, or what is wrong with it, as the end of a sentence that names it.
pub(crate) fn millis(text: &str) -> Result<u64, String> {
    // To humantime that is a month, which nobody means here.
    if text.chars().filter(|letter| letter.is_alphabetic()).eq("M".chars()) {
        return Err("has the unknown unit `M`; write `m` for minutes".to_owned());
    }
    let duration = humantime::parse_duration(text).map_err(|error| problem(text, &error))?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("is not a whole number of milliseconds".to_owned());
    }
    u64::try_from(duration.as_millis()).map_err(|_| "is out of range".to_owned())
}

/// The first and the longest delay of `"50ms..800ms"`.
pub(crate) fn delays(text: &str) -> Result<(u64, u64), String> {
    let Some((first, longest)) = text.split_once("..") else {
        return Err("lacks the longest delay; write both, as in `\"50ms..800ms\"`".to_owned());
    };
    let named = |part: &str| millis(part).map_err(|problem| format!("is wrong: `{part}` {problem}"));
    let (first, longest) = (named(first)?, named(longest)?);
    match () {
        () if first < 1 => Err("starts too low; the first delay is at least 1ms".to_owned()),
        () if longest < first => Err("is the wrong way round; the first delay is the shorter one".to_owned()),
        () if longest > DAY => Err("is out of range; no delay is longer than 24h".to_owned()),
        () => Ok((first, longest)),
    }
}

fn problem(text: &str, error: &DurationError) -> String {
    match error {
        DurationError::UnknownUnit { unit, value, .. } if unit.is_empty() => {
            format!("lacks a unit; write `\"{value}s\"` or `\"{value}ms\"`")
        }
        DurationError::UnknownUnit { unit, .. } => {
            format!("has the unknown unit `{unit}`; write `ms`, `s`, `m` or `h`")
        }
        DurationError::NumberOverflow => "is out of range".to_owned(),
        _ if text.trim_start().starts_with('-') => "can't be negative; write it as in `\"30s\"`".to_owned(),
        _ => "is not a duration; write it as in `\"30s\"` or `\"1m 30s\"`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DAY, delays, millis};

    #[test]
    fn durations_are_sums_of_units() {
        let table = [("30s", 30_000), ("1m 30s", 90_000), ("500ms", 500), ("1.5s", 1_500), ("24h", DAY)];
        for (text, expected) in table {
            assert_eq!(millis(text), Ok(expected), "for `{text}`");
        }
    }

    #[test]
    fn durations_need_a_unit_and_whole_milliseconds() {
        let table = [
            ("30", "lacks a unit"),
            ("1m 30", "lacks a unit"),
            ("30 parsecs", "unknown unit `parsecs`"),
            ("5M", "unknown unit `M`"),
            ("1500us", "whole number of milliseconds"),
            ("-5s", "can't be negative"),
            ("", "is not a duration"),
            ("soon", "is not a duration"),
            ("99999999999999999999s", "out of range"),
        ];
        for (text, part) in table {
            let problem = millis(text).err().unwrap_or_default();
            assert!(problem.contains(part), "`{text}` {problem}");
        }
    }

    #[test]
    fn delays_are_two_durations_in_order() {
        assert_eq!(delays("50ms..800ms"), Ok((50, 800)));
        assert_eq!(delays("1s .. 1s"), Ok((1000, 1000)));
        let table = [
            ("50ms", "lacks the longest delay"),
            ("50..800ms", "`50` lacks a unit"),
            ("0ms..1s", "at least 1ms"),
            ("2s..1s", "wrong way round"),
            ("1s..25h", "longer than 24h"),
            ("1s..=2s", "`=2s` is not a duration"),
        ];
        for (text, part) in table {
            let problem = delays(text).err().unwrap_or_default();
            assert!(problem.contains(part), "`{text}` {problem}");
        }
    }
}

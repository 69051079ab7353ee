//! Different arguments never give the same key, whatever the template and the values.

use distlock::__private::{Key, KeyBuilder};
use std::collections::HashMap;

use distlock::LockError;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Few characters, of others that an encoding could trip over, so that a collision would soon be found.
const TRICKY: &[char] =
    &['%', ':', '2', '5', '3', 'A', 'a', 'F', 'C', ' ', '\0', '\n', '\u{7f}', '\u{85}', 'é', '}', '{', '<', '>', '😀'];

/// A template: what stands before each placeholder, and after the last. Between two placeholders always stands something.
#[derive(Clone, Debug)]
struct Template {
    first: String,
    between: Vec<String>,
    last: String,
}

impl Template {
    /// Renders as the attribute's expansion does.
    fn render(&self, values: &[String]) -> Result<Key, LockError> {
        let mut key = KeyBuilder::new();
        if !self.first.is_empty() {
            key = key.literal(&self.first);
        }
        let behind = self.between.iter().chain([&self.last]);
        for (value, literal) in values.iter().zip(behind) {
            key = match literal.chars().next() {
                Some(next) => key.value("value", format_args!("{value}"), next).literal(literal),
                None => key.last_value("value", format_args!("{value}")),
            };
        }
        key.finish()
    }
}

fn text(letters: &'static [char], lengths: std::ops::Range<usize>) -> impl Strategy<Value = String> + Clone {
    vec(select(letters), lengths).prop_map(String::from_iter)
}

fn template(letters: &'static [char]) -> impl Strategy<Value = (Template, usize)> {
    let between = vec(text(letters, 1..3), 0..4);
    (text(letters, 0..3), between, text(letters, 0..3)).prop_map(|(first, between, last)| {
        let placeholders = between.len() + 1;
        (Template { first, between, last }, placeholders)
    })
}

/// A template with two lists of values for it.
fn calls(value: impl Strategy<Value = String> + Clone) -> impl Strategy<Value = (Template, Vec<String>, Vec<String>)> {
    template(TRICKY).prop_flat_map(move |(template, count)| {
        let values = || vec(value.clone(), count..=count);
        (Just(template), values(), values())
    })
}

fn refuse_same((template, these, others): &(Template, Vec<String>, Vec<String>)) -> Result<(), TestCaseError> {
    if let (Ok(this), Ok(that)) = (template.render(these), template.render(others)) {
        prop_assert_eq!(this == that, these == others, "{} and {}", this, that);
    }
    Ok(())
}

/// All pairs of short values, of the letters that could be taken for one another: the separator, `%`, and the digits as
/// which the separator is encoded. Chance finds such pairs too seldom.
#[test]
fn all_pairs_of_short_values_give_different_keys() {
    for separator in TRICKY {
        let template = Template { first: String::new(), between: vec![separator.to_string()], last: String::new() };
        let digits = format!("{:02X}", separator.to_string().as_bytes()[0]);
        let mut letters: Vec<char> = [*separator, '%'].into_iter().chain(digits.chars()).collect();
        letters.sort_unstable();
        letters.dedup();
        let mut keys = HashMap::new();
        for pair in pairs(&short_texts(&letters)) {
            let Ok(key) = template.render(&pair) else { continue };
            if let Some(other) = keys.insert(key.as_str().to_owned(), pair.clone()) {
                panic!("with {separator:?} between them, {pair:?} and {other:?} both give {key}");
            }
        }
    }
}

/// All texts of one to three letters.
fn short_texts(letters: &[char]) -> Vec<String> {
    let longer = |texts: &[String]| -> Vec<String> {
        texts.iter().flat_map(|text| letters.iter().map(move |letter| format!("{text}{letter}"))).collect()
    };
    let one = longer(&[String::new()]);
    let two = longer(&one);
    let three = longer(&two);
    [one, two, three].concat()
}

fn pairs(texts: &[String]) -> impl Iterator<Item = [String; 2]> {
    texts.iter().flat_map(|first| texts.iter().map(|second| [first.clone(), second.clone()]))
}

/// What the template's own text is made of, where only what comes from values is looked at.
const HARMLESS: &[char] = &[':', '/', '%', 'A', '2', 'é'];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn different_values_of_tricky_characters_give_different_keys(call in calls(text(TRICKY, 1..5))) {
        refuse_same(&call)?;
    }

    #[test]
    fn different_values_of_any_characters_give_different_keys(call in calls(any::<String>().boxed())) {
        refuse_same(&call)?;
    }

    /// Two calls that would be the same if their parts were put together as they are.
    #[test]
    fn values_that_are_cut_at_another_separator_give_different_keys(
        separator in text(TRICKY, 1..3), parts in vec(text(TRICKY, 1..4), 3..=3),
    ) {
        let template = Template { first: String::new(), between: vec![separator.clone()], last: String::new() };
        let [a, b, c] = &parts[..] else { unreachable!() };
        let these = vec![format!("{a}{separator}{b}"), c.clone()];
        let others = vec![a.clone(), format!("{b}{separator}{c}")];
        refuse_same(&(template, these, others))?;
    }

    #[test]
    fn what_is_rendered_is_a_valid_name((template, values) in template(HARMLESS).prop_flat_map(|(template, count)| {
        (Just(template), vec(prop_oneof![any::<String>(), text(TRICKY, 0..3), "[a-z]{0,600}"], count..=count))
    })) {
        let blank = values.iter().any(|value| value.chars().all(char::is_whitespace));
        match template.render(&values) {
            Ok(key) => {
                prop_assert!(!blank, "a blank value is no name");
                prop_assert!((1..=Key::MAX_LEN).contains(&key.as_str().len()));
                prop_assert!(!key.as_str().contains(char::is_control));
            }
            Err(LockError::InvalidKey { reason, .. }) => {
                prop_assert!(blank || reason.contains("at most 1024"), "{}", reason);
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

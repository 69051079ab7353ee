use std::borrow::Cow;
use std::fmt::{self, Write as _};

use crate::LockError;

/// What is locked: a text of 1 to 1,024 bytes, fixed before the body starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The longest key in bytes.
    pub const MAX_LEN: usize = 1_024;

    /// The key as which a value shows itself.
    pub(crate) fn render(value: &dyn fmt::Display) -> Result<Key, LockError> {
        let mut text = String::new();
        match write!(text, "{value}") {
            Ok(()) => Key::new(text),
            Err(fmt::Error) => Err(invalid(text, "its expression failed to render")),
        }
    }

    pub(crate) fn new(text: String) -> Result<Key, LockError> {
        if text.is_empty() {
            return Err(invalid(text, "it is empty"));
        }
        if text.len() > Key::MAX_LEN {
            let reason = format!("it has {} bytes, at most {} are allowed", text.len(), Key::MAX_LEN);
            return Err(invalid(text.chars().take(64).collect::<String>() + "..", reason));
        }
        Ok(Key(text))
    }

    /// The key of a call that will not be made.
    pub(crate) fn nothing() -> Key {
        Key(String::new())
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Renders a key template, so that different values always give different keys.
///
/// A value could otherwise run into the text behind it (`<a>:<b>` with `x:y` and `z`, or with `x` and `y:z`). So within
/// a value the first character of the literal behind it is percent-encoded, and `%` with it, and control characters,
/// which would garble a log.
#[derive(Debug)]
pub struct KeyBuilder {
    text: String,
    empty: Option<&'static str>,
    after_value: bool,
}

impl KeyBuilder {
    /// Starts an empty key.
    #[must_use]
    pub fn new() -> KeyBuilder {
        KeyBuilder { text: String::with_capacity(32), empty: None, after_value: false }
    }

    /// Appends a literal part of the template.
    #[must_use]
    pub fn literal(mut self, text: &str) -> KeyBuilder {
        // Doubled, `%` can't be taken for the beginning of an encoded character of the value before it.
        if std::mem::take(&mut self.after_value) && text.starts_with('%') {
            self.text.push('%');
        }
        self.text.push_str(text);
        self
    }

    /// Appends the value of the placeholder `name`, which the character `next` of the template follows.
    #[must_use]
    pub fn value(self, name: &'static str, value: fmt::Arguments<'_>, next: char) -> KeyBuilder {
        self.encode(name, value, Some(next))
    }

    /// Appends the value of the placeholder `name`, with which the template ends.
    #[must_use]
    pub fn last_value(self, name: &'static str, value: fmt::Arguments<'_>) -> KeyBuilder {
        self.encode(name, value, None)
    }

    fn encode(mut self, name: &'static str, value: fmt::Arguments<'_>, next: Option<char>) -> KeyBuilder {
        let mut encoder = Encoder { text: &mut self.text, next, blank: true };
        // Writing to a String can't fail. A `Display` that fails by itself has rendered nothing that could be trusted.
        if encoder.write_fmt(value).is_err() || encoder.blank {
            self.empty.get_or_insert(name);
        }
        self.after_value = true;
        self
    }

    /// Ends the key.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] if a placeholder rendered to nothing (or to blanks), or if the whole is empty or too long.
    pub fn finish(self) -> Result<Key, LockError> {
        match self.empty {
            Some(name) => Err(invalid(
                self.text,
                format!("its placeholder `<{name}>` rendered to nothing, so all such calls would share one lock"),
            )),
            None => Key::new(self.text),
        }
    }
}

impl Default for KeyBuilder {
    fn default() -> KeyBuilder {
        KeyBuilder::new()
    }
}

struct Encoder<'a> {
    text: &'a mut String,
    next: Option<char>,
    blank: bool,
}

impl fmt::Write for Encoder<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // Most values are a number or a word.
        if part.bytes().all(|byte| byte.is_ascii_alphanumeric()) && self.next.is_none_or(|next| !part.contains(next)) {
            self.blank &= part.is_empty();
            self.text.push_str(part);
            return Ok(());
        }
        for character in part.chars() {
            self.blank &= character.is_whitespace();
            if character == '%' || character.is_control() || Some(character) == self.next {
                percent_encode(character, self.text);
            } else {
                self.text.push(character);
            }
        }
        Ok(())
    }
}

fn percent_encode(character: char, text: &mut String) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a String can't fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

/// Encodes `%` and `}`, so that a key can stand between the braces of a Redis hash tag: the tag then ends where the key
/// ends, no key can name another key's helper, and two keys never become one.
pub(crate) fn encode_hash_tag(key: &str) -> Cow<'_, str> {
    // Bytes suffice, and are faster: neither occurs within a longer character.
    if !key.bytes().any(|byte| matches!(byte, b'%' | b'}')) {
        return Cow::Borrowed(key);
    }
    let mut text = String::with_capacity(key.len() + 8);
    for character in key.chars() {
        if matches!(character, '%' | '}') { percent_encode(character, &mut text) } else { text.push(character) }
    }
    Cow::Owned(text)
}

fn invalid(key: String, reason: impl Into<String>) -> LockError {
    LockError::InvalidKey { key, reason: reason.into() }
}

/// What a call locks: one key or several, in one order and without repetition.
#[allow(missing_debug_implementations)]
pub struct Keys {
    first: Key,
    others: Vec<Key>,
}

impl Keys {
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] if there are none.
    pub(crate) fn new(mut keys: Vec<Key>) -> Result<Keys, LockError> {
        // In the same order for everybody, so that no two callers wait for each other.
        keys.sort_unstable();
        keys.dedup();
        let mut keys = keys.into_iter();
        let none = || LockError::InvalidKey { key: String::new(), reason: "there are no keys to lock".to_owned() };
        Ok(Keys { first: keys.next().ok_or_else(none)?, others: keys.collect() })
    }

    pub(crate) fn in_order(self) -> (Key, Vec<Key>) {
        (self.first, self.others)
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Keys {
        Keys { first: key, others: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(a: &str, b: &str) -> Result<Key, LockError> {
        KeyBuilder::new()
            .literal("p:")
            .value("a", format_args!("{a}"), ':')
            .literal(":")
            .last_value("b", format_args!("{b}"))
            .finish()
    }

    #[test]
    fn values_that_contain_the_separator_do_not_run_together() {
        assert_eq!(pair("x", "y").unwrap().as_str(), "p:x:y");
        assert_eq!(pair("x:y", "z").unwrap().as_str(), "p:x%3Ay:z");
        assert_ne!(pair("x:y", "z").unwrap(), pair("x", "y:z").unwrap());
        assert_ne!(pair("x%3Ay", "z").unwrap(), pair("x:y", "z").unwrap());
    }

    #[test]
    fn a_percent_sign_as_the_separator_is_none_of_a_value() {
        let key = |a: &str, b: &str| {
            let key = KeyBuilder::new().value("a", format_args!("{a}"), '%').literal("%");
            key.last_value("b", format_args!("{b}")).finish().unwrap()
        };
        assert_eq!(key("x%y", "25z").as_str(), "x%25y%%25z");
        assert_ne!(key("x%y", "25z"), key("x", "25y%z"));
        assert_ne!(key("x%", "q"), key("x", "%q"));
    }

    #[test]
    fn control_characters_never_reach_the_key() {
        assert_eq!(pair("a\r\nb", "\u{7f}").unwrap().as_str(), "p:a%0D%0Ab:%7F");
    }

    #[test]
    fn an_empty_or_blank_value_is_refused_by_its_placeholders_name() {
        for value in ["", " ", "\u{a0}", "\t\n"] {
            let error = pair("x", value).unwrap_err().to_string();
            assert!(error.contains("`<b>` rendered to nothing"), "{error}");
        }
    }

    #[test]
    fn a_key_has_1_to_1024_bytes() {
        assert!(Key::new(String::new()).is_err());
        assert!(Key::new("x".repeat(1_024)).is_ok());
        let error = Key::new("é".repeat(513)).unwrap_err().to_string();
        assert!(error.contains("1026 bytes, at most 1024"), "{error}");
    }

    #[test]
    fn a_hash_tag_keeps_different_keys_apart() {
        assert_eq!(encode_hash_tag("order:42"), "order:42");
        assert_eq!(encode_hash_tag("a}b"), "a%7Db");
        assert_eq!(encode_hash_tag("a%7Db"), "a%257Db");
    }
}

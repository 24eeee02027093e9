//! Attributes with a fixed set of values.

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value},
};

use crate::explain::values;

/// A fixed set of values: one list for parser, check and documentation.
pub(crate) trait EnumAttribute: Copy + PartialEq + 'static {
    /// All members with their strings; the first is the default.
    const VALUES: &'static [(Self, &'static str)];

    fn from_word(word: &str) -> Option<Self> {
        Self::VALUES.iter().find(|(_, known)| *known == word).map(|(member, _)| *member)
    }

    /// The values as text: `` `graceful` (default) or `forceful` ``.
    fn choices() -> String {
        let words: Vec<_> = Self::VALUES.iter().map(|(_, word)| format!("`{word}`")).collect();
        match words.as_slice() {
            [first, middle @ .., last] => {
                let middle: String = middle.iter().map(|word| format!(", {word}")).collect();
                format!("{first} (default){middle} or {last}")
            }
            _ => words.concat(),
        }
    }
}

/// The member of an attribute; the default if it is null. [`check_member`] rejects other values.
pub(crate) fn member<T: EnumAttribute>(value: &Value<String>) -> T {
    value.as_ref_option().and_then(|word| T::from_word(word)).unwrap_or(T::VALUES[0].0)
}

/// Rejects a value that is not in the set. Accepts null and unknown.
pub(crate) fn check_member<T: EnumAttribute>(
    value: &Value<String>,
    path: &AttributePath,
    problems: &mut Problems,
) {
    if let Value::Value(word) = value
        && T::from_word(word).is_none()
    {
        problems.add(values::not_one_of(path.clone(), word, &T::choices()));
    }
}

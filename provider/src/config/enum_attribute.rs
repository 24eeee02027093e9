//! Attributes with a fixed set of values.

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value},
};

use crate::explain::values;

/// A fixed set of values: one list for parser, check and documentation.
pub(crate) trait EnumAttribute: Copy + PartialEq + 'static {
    /// All members with their strings.
    const VALUES: &'static [(Self, &'static str)];
    const DEFAULT: Self = Self::VALUES[0].0;

    fn from_word(word: &str) -> Option<Self> {
        Self::VALUES.iter().find(|(_, known)| *known == word).map(|(member, _)| *member)
    }

    /// The values as text: `` `graceful` (default) or `forceful` ``.
    fn choices() -> String {
        let word = |(member, word): &(Self, &str)| {
            let default = if *member == Self::DEFAULT { " (default)" } else { "" };
            format!("`{word}`{default}")
        };
        let words: Vec<_> = Self::VALUES.iter().map(word).collect();
        match words.as_slice() {
            [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
            _ => words.concat(),
        }
    }
}

/// The member of an attribute; the default if it is null. [`check_member`] rejects other values.
pub(crate) fn member<T: EnumAttribute>(value: &Value<String>) -> T {
    value.as_ref_option().and_then(|word| T::from_word(word)).unwrap_or(T::DEFAULT)
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

//! Attributes that take one of a few words.

use crate::{
    explain::values,
    schema::{AttributePath, Diagnostics, Value},
};

/// A closed set of words. The one list feeds parser, validator and documentation.
pub(crate) trait EnumAttribute: Copy + PartialEq + 'static {
    /// Every member with its word; the first is the default.
    const VALUES: &'static [(Self, &'static str)];

    /// The member for a word.
    fn from_word(word: &str) -> Option<Self> {
        Self::VALUES.iter().find(|(_, known)| *known == word).map(|(member, _)| *member)
    }

    /// The words as a text for people: `` `graceful` (default) or `forceful` ``.
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

/// The member that an attribute names; the default where it is null. Unknown words were refused by [`check`].
pub(crate) fn member<T: EnumAttribute>(value: &Value<String>) -> T {
    value.as_ref_option().and_then(|word| T::from_word(word)).unwrap_or(T::VALUES[0].0)
}

/// Refuses a word that is not in the set. Null and unknown pass.
pub(crate) fn check<T: EnumAttribute>(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    if let Value::Value(word) = value
        && T::from_word(word).is_none()
    {
        values::not_one_of(&path, word, &T::choices()).error(path, diags);
    }
}

//! The user's word, for one run, that hosts are gone: `GRIT_ASSUME_TERMINATED=<instance_id>[,...]`.

/// The environment variable.
pub const VARIABLE: &str = "GRIT_ASSUME_TERMINATED";

/// What names a guard there: its instance, else its own identifier.
pub fn key<'a>(instance: Option<&'a str>, id: &'a str) -> &'a str {
    instance.filter(|instance| !instance.is_empty()).unwrap_or(id)
}

/// Whether the list in the variable names this guard.
pub fn names(list: Option<&str>, key: &str) -> bool {
    !key.is_empty() && list.is_some_and(|list| list.split(',').any(|named| named.trim() == key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_named_by_its_instance_or_by_its_own_identifier() {
        assert_eq!(key(Some("i-1"), "m1@h#1"), "i-1");
        assert_eq!(key(Some(""), "m1@h#1"), "m1@h#1");
        assert_eq!(key(None, "adopted#1"), "adopted#1");
    }

    #[test]
    fn the_list_is_separated_by_commas() {
        assert!(names(Some("i-1, i-2"), "i-2"));
        assert!(!names(Some("i-10"), "i-1"));
        assert!(!names(Some(","), ""));
        assert!(!names(None, "i-1"));
    }
}

//! `GRIT_ASSUME_TERMINATED`: the user's word, for one run, that named instances are gone.
//!
//! The lasting word is `on_unreachable = "assume_terminated"`. That one has to be applied before it counts, which is not possible once the
//! manager is out of the configuration. The variable needs no configuration.

/// Identifiers of instances, or of guards, separated by commas.
pub(crate) const VARIABLE: &str = "GRIT_ASSUME_TERMINATED";

/// Whether the variable names a guard: by the `instance_id` of its instance, or by its own `id`.
pub(crate) fn names<'a>(identifiers: impl IntoIterator<Item = &'a str>) -> bool {
    std::env::var(VARIABLE).is_ok_and(|list| list_names(&list, identifiers))
}

fn list_names<'a>(list: &str, identifiers: impl IntoIterator<Item = &'a str>) -> bool {
    identifiers.into_iter().any(|id| !id.is_empty() && list.split(',').any(|named| named.trim() == id))
}

/// The command that gives the word for one instance, to be shown to the user.
pub(crate) fn command(identifier: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:./#-".contains(c);
    if identifier.chars().all(plain) {
        format!("{VARIABLE}={identifier} terraform apply")
    } else {
        format!("{VARIABLE}='{}' terraform apply", identifier.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assume_terminated_matches_whole_ids_only() {
        assert!(list_names("i-1", ["i-1"]));
        assert!(list_names(" i-2 , i-1 ", ["i-1"]));
        assert!(list_names("m1@h#0a", ["", "m1@h#0a"]));
        for list in ["", ",", "i-10", "I-1", "*", "all"] {
            assert!(!list_names(list, ["i-1", ""]), "{list:?}");
        }
    }

    #[test]
    fn assume_terminated_command_is_shell_quoted() {
        assert_eq!(command("i-0a1"), "GRIT_ASSUME_TERMINATED=i-0a1 terraform apply");
        assert_eq!(command("projects/p/vm 1"), "GRIT_ASSUME_TERMINATED='projects/p/vm 1' terraform apply");
        assert_eq!(command("it's"), r"GRIT_ASSUME_TERMINATED='it'\''s' terraform apply");
    }
}

//! `GRIT_ASSUME_TERMINATED`: treats instances as terminated in one run.
//!
//! It is a person's statement about these instances: the first failure to reach a wrapper ends its drain with a warning. A response of the wrapper
//! counts against it, and a host that is seen to be there: its host key is verified, and it refuses the login. `on_unreachable =
//! "assume_terminated"`, which is permanent, needs a direct connection, an address at which nothing responds, and another host that this process
//! has reached, and must be applied before the runner manager is removed from the configuration.

/// Ids of instances or drain resources, separated by commas.
pub(crate) const VARIABLE: &str = "GRIT_ASSUME_TERMINATED";

/// The value of the variable in this run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assumed(String);

impl Assumed {
    pub(super) fn new(list: Option<String>) -> Self {
        Self(list.unwrap_or_default())
    }

    /// Whether the variable contains one of the ids: of the instance, or of the drain resource.
    pub(crate) fn contains<'a>(&self, identifiers: impl IntoIterator<Item = &'a str>) -> bool {
        list_names(&self.0, identifiers)
    }

    /// Whether the variable contains any id.
    pub(crate) fn is_set(&self) -> bool {
        !self.0.trim().is_empty()
    }
}

/// White space around an id does not count. The whole list can be one id that contains a comma.
fn list_names<'a>(list: &str, identifiers: impl IntoIterator<Item = &'a str>) -> bool {
    let names = |id: &str| list.trim() == id || list.split(',').any(|named| named.trim() == id);
    identifiers.into_iter().map(str::trim).any(|id| !id.is_empty() && names(id))
}

/// The Terraform command that the user repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated {
    Apply,
    /// `apply` or `destroy`: Terraform does not send this to the provider. The user replaces the word, because an apply after a failed destroy creates again what
    /// the destroy has removed.
    Failed,
}

/// The commands for the user that treat instances as terminated: one, and one for each identifier with a comma, which cannot be in a list.
pub(crate) fn commands(identifiers: &[impl AsRef<str>], repeated: Repeated) -> Vec<String> {
    let identifiers = identifiers.iter().map(|id| id.as_ref().trim());
    let (with_comma, plain): (Vec<&str>, Vec<&str>) = identifiers.partition(|id| id.contains(','));
    let list = Some(plain.join(",")).filter(|list| !list.is_empty());
    list.into_iter()
        .chain(with_comma.iter().map(|id| (*id).to_owned()))
        .map(|list| command(&list, repeated))
        .collect()
}

fn command(list: &str, repeated: Repeated) -> String {
    let word = match repeated {
        Repeated::Apply => "apply",
        Repeated::Failed => "COMMAND",
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:./#-,".contains(c);
    if list.chars().all(plain) {
        format!("{VARIABLE}={list} terraform {word}")
    } else {
        format!("{VARIABLE}='{}' terraform {word}", list.replace('\'', r"'\''"))
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
            assert!(!list_names(list, ["i-1", "", " "]), "{list:?}");
        }
        for part in ["a", "b", "a,", "b,a"] {
            assert!(!list_names(part, ["a,b"]), "{part:?}");
        }
    }

    #[test]
    fn assume_terminated_command_matches_every_id() {
        for ids in [
            &["i-1"][..],
            &["i-1\n"],
            &[" i-1"],
            &["a,b"],
            &[" a,b\n"],
            &["it's"],
            &["i-1", "a b", " it's", "a,b"],
        ] {
            let commands = commands(ids, Repeated::Apply);
            let values = commands.iter().map(|command| {
                let command = command.replace("terraform apply", "printenv -0 GRIT_ASSUME_TERMINATED");
                let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
                String::from_utf8(output.stdout).unwrap().trim_end_matches('\0').to_owned()
            });
            let values: Vec<String> = values.collect();
            for id in ids {
                assert!(values.iter().any(|value| list_names(value, [*id])), "{values:?} for {id:?}");
            }
        }
    }

    #[test]
    fn assume_terminated_command_is_shell_quoted() {
        let command = |id| commands(&[id], Repeated::Apply).join("\n");
        assert_eq!(command("i-0a1"), "GRIT_ASSUME_TERMINATED=i-0a1 terraform apply");
        assert_eq!(command("projects/p/vm 1"), "GRIT_ASSUME_TERMINATED='projects/p/vm 1' terraform apply");
        assert_eq!(command("i-1\n"), "GRIT_ASSUME_TERMINATED=i-1 terraform apply");
        assert_eq!(command("it's"), r"GRIT_ASSUME_TERMINATED='it'\''s' terraform apply");
        assert_eq!(
            commands(&["i-1", "i-2"], Repeated::Failed),
            ["GRIT_ASSUME_TERMINATED=i-1,i-2 terraform COMMAND"]
        );
    }
}

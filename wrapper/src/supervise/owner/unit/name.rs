//! The name of a unit.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The full name of a service unit, such as `gitlab-runner.service`. It is valid as a file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitName(String);

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected the full name of a service unit, such as gitlab-runner.service")]
pub struct UnitError;

impl UnitName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UnitName {
    type Err = UnitError;

    /// systemd.unit(5): letters, digits and `:-_.\`, and an instance after `@`.
    fn from_str(name: &str) -> Result<Self, UnitError> {
        let prefix = name.strip_suffix(".service").ok_or(UnitError)?;
        let is_valid = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        let is_name = !prefix.is_empty() && !prefix.starts_with(['.', '-']) && prefix.chars().all(is_valid);
        if is_name && name.len() < 256 { Ok(Self(name.to_owned())) } else { Err(UnitError) }
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_service_is_a_file_name() {
        for name in ["gitlab-runner.service", "gitlab-runner@b.service", "a_b:c.service", "a\\x2db.service"] {
            assert_eq!(name.parse::<UnitName>().unwrap().as_str(), name);
        }
        for name in [
            "",
            "gitlab-runner",
            ".service",
            "-x.service",
            "a/b.service",
            "../x.service",
            "a b.service",
            "x.timer",
        ] {
            assert_eq!(name.parse::<UnitName>(), Err(UnitError), "{name}");
        }
    }
}

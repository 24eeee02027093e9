//! Texts for invalid values in the configuration. Each contains the path of the attribute, the value, and what is accepted.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use grit_plugin::{
    Problem,
    schema::{AttributePath, AttributePathStep},
};

use super::code::Code;
use crate::duration::human;

fn invalid(summary: &str, happened: String) -> Problem {
    Problem::new(Code::InvalidConfig, summary, happened, "")
}

/// An attribute, or an entry of a map.
pub(crate) fn null(path: AttributePath) -> Problem {
    if matches!(path.steps.last(), Some(AttributePathStep::Key(_))) {
        return null_element(path);
    }
    invalid("Required attribute is null", format!("`{path}` is required and must not be null.")).at(path)
}

pub(crate) fn empty(path: AttributePath, text: &str) -> Problem {
    invalid(
        "Required attribute is empty",
        format!("`{path}` is {text:?}; it is required and must not be empty."),
    )
    .at(path)
}

pub(crate) fn too_long(path: AttributePath, length: usize, limit: usize) -> Problem {
    invalid("Invalid value", format!("`{path}` has {length} characters; at most {limit} are accepted."))
        .at(path)
}

pub(crate) fn null_element(path: AttributePath) -> Problem {
    invalid("Element is null", format!("`{path}` is null. Remove the element, or set a value.")).at(path)
}

/// `found`, `wanted`: types in the words of Terraform's users.
pub(crate) fn wrong_type(path: AttributePath, found: &str, wanted: &str) -> Problem {
    invalid("Wrong type", format!("`{path}` is {found}; it must be {wanted}.")).at(path)
}

/// The value is not shown: the URL may contain a password.
pub(crate) fn gitlab_url(path: AttributePath) -> Problem {
    invalid(
        "Invalid URL",
        format!(
            "`{path}` must be an `https` or `http` URL of a GitLab instance, without user, query and fragment."
        ),
    )
    .at(path)
}

/// Warns that the token is sent in clear.
pub(crate) fn gitlab_without_tls(url: &str) -> Problem {
    Problem::new(
        Code::Notice,
        "GitLab token is sent without encryption",
        format!(
            "`gitlab.url` is {url:?}: everyone on the network between this machine and GitLab can read the token and change the answers."
        ),
        "Set an `https` URL. For an own certificate authority, set `gitlab.ca_certificate`.",
    )
}

pub(crate) fn gitlab_token(path: AttributePath) -> Problem {
    invalid(
        "Invalid token",
        format!("`{path}` contains a character that is not valid in an access token, such as a line break."),
    )
    .at(path)
}

pub(crate) fn certificate(path: AttributePath) -> Problem {
    invalid(
        "Invalid certificate",
        format!(
            "`{path}` must contain certificates in PEM format (`-----BEGIN CERTIFICATE-----`), for example by `file(\"ca.pem\")`."
        ),
    )
    .at(path)
}

/// Warns about attributes of runner managers that nothing reads.
pub(crate) fn unused_attributes(paths: &[AttributePath]) -> Problem {
    let lines: Vec<_> = paths.iter().map(|path| format!("- `{path}`")).collect();
    Problem::new(
        Code::Notice,
        "Attributes of runner managers are not used",
        format!(
            "These are not attributes of a runner manager, and the provider does not read them:\n\n{}",
            lines.join("\n")
        ),
        "Check their names. If they are correct, ignore this warning.",
    )
}

/// Two keys of one runner manager. `what`: the attributes that are equal.
pub(crate) fn same_manager(path: AttributePath, other: &AttributePath, what: &str) -> Problem {
    invalid(
        "Runner manager has two keys",
        format!(
            "`{path}` and `{other}` have the same {what}. The map must contain each runner manager only once."
        ),
    )
    .at(path)
}

/// `set`: the names that are set. `choices`: all names.
pub(crate) fn not_exactly_one(set: &[&str], choices: &[&str]) -> Problem {
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let happened = if set.is_empty() {
        format!("None of {} is set; set exactly one of them.", list(choices))
    } else {
        format!("{} are set; set exactly one of {}.", list(set), list(choices))
    };
    invalid("Exactly one source is required", happened)
}

pub(crate) fn only_with(path: AttributePath, other: &str) -> Problem {
    invalid(
        "Attribute has no effect",
        format!("`{path}` has an effect only with `{other}`. Remove `{path}`, or set `{other}`."),
    )
    .at(path)
}

/// An attribute of a private key, in an object without one.
pub(crate) fn without_private_key(path: AttributePath) -> Problem {
    invalid(
        "Attribute has no effect",
        format!(
            "`{path}` is set, but neither `private_key` nor `private_key_path` is set in the same object. Remove `{path}`, or set one of \
             these attributes."
        ),
    )
    .at(path)
}

/// `choices`: the accepted values.
pub(crate) fn not_one_of(path: AttributePath, text: &str, choices: &str) -> Problem {
    invalid("Invalid value", format!("`{path}` is {text:?}; it must be {choices}.")).at(path)
}

pub(crate) fn number(path: AttributePath, number: impl Display, range: &RangeInclusive<i64>) -> Problem {
    let (least, most) = (range.start(), range.end());
    invalid(
        "Invalid number",
        format!("`{path}` is {number}; it must be a whole number from {least} to {most}."),
    )
    .at(path)
}

/// `problem` contains what is accepted.
pub(crate) fn address(path: AttributePath, problem: impl Display) -> Problem {
    invalid("Invalid address", format!("`{path}`: {problem}.")).at(path)
}

pub(crate) fn host_key(path: AttributePath, problem: &str) -> Problem {
    invalid("Invalid host key", format!("`{path}`: {problem}.")).at(path)
}

pub(crate) fn user_name(path: AttributePath, text: &str) -> Problem {
    invalid(
        "Invalid user name",
        format!("`{path}` is {text:?}; it must not contain white space or control characters."),
    )
    .at(path)
}

pub(crate) fn ssh_option(path: AttributePath, problem: &str) -> Problem {
    invalid("Invalid SSH option", format!("`{path}`: {problem}.")).at(path)
}

/// Warns: only a connection needs the value. `variable`: its name.
pub(crate) fn ssh_variable(variable: impl Display, problem: &str) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Invalid environment variable",
        format!("`{variable}`: {problem}."),
        "Correct or unset the variable: connections that need it will fail. If it is a GitLab CI/CD variable of type File, its value is a \
         path: use the type Variable, or the environment variable that ends in `_PATH`.",
    )
}

/// Warns: only a connection needs the file, and a plan opens no connection.
pub(crate) fn ssh_file(path: AttributePath, problem: &str) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "SSH file cannot be used",
        format!("`{path}`: {problem}."),
        "Correct the path or the file: connections that need this file will fail.",
    )
    .at(path)
}

pub(crate) fn conflicting_keys(path: AttributePath) -> Problem {
    invalid(
        "Conflicting private keys",
        format!("Set only one of `{path}.private_key` and `{path}.private_key_path`."),
    )
    .at(path)
}

pub(crate) fn conflicting_methods(first: &str, other: &str) -> Problem {
    invalid(
        "Conflicting connection methods",
        format!("Set only one of `ssh.{first}` and `ssh.{other}`, or neither for a direct connection."),
    )
}

pub(crate) fn host_keys_not_verified() -> Problem {
    Problem::new(
        Code::Notice,
        "Host keys are not verified",
        "Man-in-the-middle attacks are possible on connections to hosts without `host_key`.",
        "Set `known_hosts` or `host_keys`, or `host_key` of the runner manager.",
    )
}

/// Warns about a wrapper whose address any user of its host can take.
pub(crate) fn unprotected_wrapper(manager: &str, address: &str) -> Problem {
    Problem::new(
        Code::Notice,
        "Wrapper has a TCP address",
        format!(
            "Runner manager {manager:?}: `wrapper_address` is {address:?}. Any user of the host can control the runner at this address, and can \
             listen there while the wrapper does not run. Terraform then receives a false report that the runner has exited, and destroys the \
             instance with its running jobs."
        ),
        "Use a Unix socket: `unix:///run/grit-wrapper/gitlab-runner.service.sock` (flag `--grpc-listen` of the wrapper).",
    )
}

/// `named`: the path with the value.
pub(crate) fn duration(named: &str, error: impl Display, accepted: &str) -> Problem {
    invalid("Invalid duration", format!("{named} is not a valid duration: {error}. Accepted: {accepted}."))
}

pub(crate) fn duration_too_short(path: AttributePath, text: &str, least: &str) -> Problem {
    invalid("Duration is too short", format!("`{path}` is {text:?}; it must be at least {least}.")).at(path)
}

/// `attribute`: the attribute of `timeouts` with the limit.
pub(crate) fn stable_for_exceeds_timeout(text: &str, attribute: &str, limit: Duration) -> Problem {
    invalid(
        "`stable_for` exceeds the timeout",
        format!(
            "`stable_for` is {text:?}; it must be less than `timeouts.{attribute}` ({}). Raise `timeouts.{attribute}`, or lower \
             `stable_for`.",
            human(limit)
        ),
    )
}

/// `min_jobs` is set, but the level does not wait for jobs.
pub(crate) fn min_jobs_without_working(level: &str) -> Problem {
    invalid(
        "Invalid value",
        format!(
            "`min_jobs` requires `level = \"working\"`. `level` is `{level}`, which does not wait for jobs."
        ),
    )
}

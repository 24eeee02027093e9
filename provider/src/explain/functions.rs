//! Texts for errors of provider functions. Terraform writes the names of the function and the parameter before them.

use grit_plugin::{FunctionError, Problem, Problems, schema::AttributePath};

use super::code::Code;

/// All problems of one argument.
pub(crate) fn invalid_argument(index: usize, problems: &Problems) -> FunctionError {
    let problems: Vec<_> = problems.iter().map(Problem::text).collect();
    let text = match problems.as_slice() {
        [one] => one.clone(),
        several => several.iter().map(|problem| format!("\n- {problem}")).collect(),
    };
    Problem::new(Code::InvalidConfig, "Invalid argument", text, "").argument(index)
}

/// An attribute that no runner manager has.
pub(crate) fn unused_attribute(path: &AttributePath, known: &[&str]) -> Problem {
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    invalid(format!(
        "`{path}` is not an attribute of a runner manager. Its attributes: {}.",
        known.join(", ")
    ))
}

/// An argument of `managers_from_grit` that is neither a module nor a collection of modules. `path` is empty for the argument itself.
pub(crate) fn not_a_module(path: &AttributePath, found: &str) -> Problem {
    invalid(format!(
        "{}{found}; it must be the outputs of GRIT's module `aws/runner` (with `ec2_instance_name`) or `google/runner` (with `internal_ip`), \
         or a map of such outputs.",
        prefix(path)
    ))
}

/// A module without a name for its runner manager.
pub(crate) fn no_instance_name(path: &AttributePath, attribute: &str) -> Problem {
    invalid(format!("{}`{attribute}` is empty: the runner manager would have no key.", prefix(path)))
}

/// A module whose wrapper is not enabled.
pub(crate) fn no_wrapper(path: &AttributePath, attribute: &str) -> Problem {
    invalid(format!(
        "{}`{attribute}` is empty: set `runner_wrapper = {{ enabled = true }}` in the module.",
        prefix(path)
    ))
}

/// A module whose instance has no address.
pub(crate) fn no_address(path: &AttributePath, attributes: [&str; 2]) -> Problem {
    let [first, second] = attributes;
    invalid(format!("{}`{first}` and `{second}` are empty.", prefix(path)))
}

/// Two modules with the same key.
pub(crate) fn same_key(key: &str) -> Problem {
    invalid(format!(
        "there are two runner managers with the key {key:?}. Pass a map, for example `{{ blue = module.blue, green = module.green }}`, whose keys \
         become the keys of the runner managers."
    ))
}

fn invalid(happened: String) -> Problem {
    Problem::new(Code::InvalidConfig, "Invalid argument", happened, "")
}

fn prefix(path: &AttributePath) -> String {
    if path.steps.is_empty() { String::new() } else { format!("`{path}`: ") }
}

//! Checks of `ssh` and its jump hosts.

use std::path::Path;

use grit_plugin::{
    Problems, call,
    schema::{AttributePath, Value},
};
use grit_ssh::{Secret, check, expand};

use super::text::set;
use crate::explain::values;

/// The attributes `private_key`, `private_key_path` and `certificate_path` of an object.
pub(super) fn check_keys(
    [text, file, certificate]: [&Value<String>; 3],
    path: &AttributePath,
    home: Option<&Path>,
    problems: &mut Problems,
) {
    let at = |name: &'static str| path.clone().attribute(name);
    if set(text).is_some() && set(file).is_some() {
        problems.add(values::conflicting_keys(path.clone()).at(at("private_key_path")));
    }
    // An empty text is an error: `tls_private_key` has one for a key that OpenSSH does not support.
    if let Value::Value(text) = text
        && let Err(problem) = check::private_key(&Secret::new(text.clone()))
    {
        invalid(at("private_key"), &problem, problems);
    }
    check_file(file, at("private_key_path"), home, check::private_key_file);
    check_file(certificate, at("certificate_path"), home, check::certificate_file);
}

/// Rejects attributes of a private key in an object without one.
pub(super) fn check_needs_key(
    [text, file]: [&Value<String>; 2],
    attributes: &[(&'static str, &Value<String>)],
    path: &AttributePath,
    problems: &mut Problems,
) {
    let may_be_set = |key: &Value<String>| key.is_unknown() || set(key).is_some();
    if may_be_set(text) || may_be_set(file) {
        return;
    }
    for (name, _) in attributes.iter().filter(|(_, value)| set(value).is_some()) {
        problems.add(values::without_private_key(path.clone().attribute(*name)));
    }
}

/// Warns about a file that a connection cannot use. It is not an error: a plan of drains opens no connection.
pub(super) fn check_file(
    value: &Value<String>,
    path: AttributePath,
    home: Option<&Path>,
    check: impl FnOnce(&Path) -> Result<(), String>,
) {
    if let Some(file) = set(value)
        && let Err(problem) = check(&expand(file.as_ref(), home))
    {
        call().warn(values::ssh_file(path, &problem));
    }
}

pub(super) fn check_elements<T>(list: &Value<Vec<Value<T>>>, path: &AttributePath, problems: &mut Problems) {
    for (index, element) in (0i64..).zip(list.iter().flatten()) {
        if element.is_null() {
            problems.add(values::null_element(path.clone().index(index)));
        }
    }
}

pub(super) fn invalid(path: AttributePath, problem: &str, problems: &mut Problems) {
    problems.add(values::ssh_option(path, problem));
}

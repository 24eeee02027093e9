//! Checks of `ssh` and its jump hosts. They accept null and unknown.

use std::path::Path;

use grit_plugin::{
    Problems, call,
    schema::{AttributePath, Value},
};
use grit_ssh::{check, expand};

use super::{object::check_elements, text::set};
use crate::explain::values;

/// Checks each element. Rejects those that are null.
pub(super) fn check_each(
    check: fn(&Value<String>, &AttributePath, &mut Problems),
) -> impl Fn(&Value<Vec<Value<String>>>, &AttributePath, &mut Problems) {
    move |list, path, problems| {
        check_elements(list, path, problems);
        for (index, element) in (0i64..).zip(list.iter().flatten()) {
            check(element, &path.clone().index(index), problems);
        }
    }
}

pub(super) fn check_host_keys(keys: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(keys) = keys {
        check_option(check::host_keys(keys), path, problems);
    }
}

pub(super) fn check_host_authority(key: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(key) = key {
        check_option(check::host_authority(key), path, problems);
    }
}

pub(super) fn check_known_hosts(lines: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Some(lines) = set(lines) {
        check_option(check::known_hosts(lines.as_bytes()), path, problems);
    }
}

pub(super) fn check_option(checked: Result<(), String>, path: &AttributePath, problems: &mut Problems) {
    if let Err(problem) = checked {
        problems.add(values::ssh_option(path.clone(), &problem));
    }
}

/// Warns about a file that a connection cannot use. It is not an error: a plan of drains opens no connection.
pub(super) fn check_file(
    value: &Value<String>,
    path: &AttributePath,
    home: Option<&Path>,
    check: impl FnOnce(&Path) -> Result<(), String>,
) {
    if let Some(file) = set(value)
        && let Err(problem) = check(&expand(file.as_ref(), home))
    {
        call().warn(values::ssh_file(path.clone(), &problem));
    }
}

//! The `timeouts` objects, and attributes with durations.

use std::time::Duration;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value, text},
};

use super::object::object;
use crate::{duration, explain::values};

object! {
    /// Of a resource that waits at create and update. `scope` names the parts of the operation.
    #[derive(Debug)]
    pub(crate) struct WaitTimeouts(default, scope) {
        pub(crate) create: Value<String> = text =>
            format!("Timeout of the whole create{scope}. Default `{default}`; minimum `1s`."), check_timeout;
        pub(crate) update: Value<String> = text =>
            format!("Timeout of the whole update{scope}. Default `{default}`; minimum `1s`."), check_timeout;
    }
}

object! {
    /// Of a resource that waits at destroy. Destroy receives the value of the last apply.
    #[derive(Debug)]
    pub(crate) struct DeleteTimeout(default) {
        pub(crate) delete: Value<String> = text => format!(
            "Timeout of the whole drain: connections, the request, and the wait for the exit of the process. \
             Default `{default}`; minimum `1s`; days are allowed, as in `2d`. With `on_timeout = \"force\"`, this is the timeout of the \
             graceful part. A destroy uses the value of the last apply."
        ), check_timeout;
    }
}

object! {
    /// Of an action.
    #[derive(Debug)]
    pub(crate) struct InvokeTimeout(default) {
        pub(crate) invoke: Value<String> = text =>
            format!("Timeout of the whole action. Default `{default}`; minimum `1s`."), check_timeout;
    }
}

impl WaitTimeouts {
    /// The timeout of a create; `default` if it is not set. The same applies to the operations below.
    pub(crate) fn create(timeouts: &Value<Self>, default: Duration) -> Duration {
        timeout(timeouts, |it| &it.create, default)
    }

    pub(crate) fn update(timeouts: &Value<Self>, default: Duration) -> Duration {
        timeout(timeouts, |it| &it.update, default)
    }
}

impl DeleteTimeout {
    pub(crate) fn delete(timeouts: &Value<Self>, default: Duration) -> Duration {
        timeout(timeouts, |it| &it.delete, default)
    }
}

impl InvokeTimeout {
    pub(crate) fn invoke(timeouts: &Value<Self>, default: Duration) -> Duration {
        timeout(timeouts, |it| &it.invoke, default)
    }
}

fn timeout<T>(timeouts: &Value<T>, operation: fn(&T) -> &Value<String>, default: Duration) -> Duration {
    timeouts.as_ref_option().map_or(default, |timeouts| duration_or(operation(timeouts), default))
}

/// The minimum of a timeout.
const SHORTEST_TIMEOUT: (Duration, &str) = (Duration::from_secs(1), "1s");

/// The minimum of a limit of one connection, and of a delay between two attempts.
pub(super) const SHORTEST_DELAY: (Duration, &str) = (Duration::from_millis(100), "100ms");

fn check_timeout(value: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    check_at_least(SHORTEST_TIMEOUT)(value, path, problems);
}

/// Rejects invalid and too short durations. Accepts null and unknown.
pub(super) fn check_at_least(
    (least, text_of_least): (Duration, &'static str),
) -> impl Fn(&Value<String>, &AttributePath, &mut Problems) {
    move |value, path, problems| {
        check_duration(value, path, problems);
        if let Value::Value(text) = value
            && duration::parse(text).is_ok_and(|time| time < least)
        {
            problems.add(values::duration_too_short(path.clone(), text, text_of_least));
        }
    }
}

/// The duration of an attribute; `default` if it is null, or invalid, which [`check_duration`] rejects.
pub(crate) fn duration_or(value: &Value<String>, default: Duration) -> Duration {
    value.as_ref_option().and_then(|text| duration::parse(text).ok()).unwrap_or(default)
}

/// Rejects invalid durations. Accepts null and unknown.
///
/// The text contains the attribute, because Terraform points at the outer object of a nested attribute.
pub(crate) fn check_duration(value: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(text) = value
        && let Err(error) = duration::parse(text)
    {
        let named = format!("`{path}`: {text:?}");
        problems.add(values::duration(&named, error, duration::ACCEPTED).at(path.clone()));
    }
}

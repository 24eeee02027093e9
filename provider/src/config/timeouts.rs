//! The `timeouts` object, and attributes with durations.

use std::time::Duration;

use grit_plugin::{
    Problems, attribute_map,
    schema::{AttributePath, Attributes, Value, text},
};
use serde::{Deserialize, Serialize};

use crate::{duration, explain::values};

/// A `timeouts` object: its attributes with their descriptions, and the parameters of the descriptions.
macro_rules! timeouts {
    ($(#[$doc:meta])* $name:ident($($parameter:ident),+) { $($operation:ident: $description:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub(crate) struct $name {
            $(pub $operation: Value<String>),+
        }

        impl $name {
            pub(crate) fn attributes($($parameter: &str),+) -> Attributes {
                attribute_map! { $($operation: text => &format!($description)),+ }
            }

            $(
                /// The timeout of this operation; `default` if it is not set.
                pub(crate) fn $operation(timeouts: &Value<Self>, default: Duration) -> Duration {
                    timeouts.as_ref_option().map_or(default, |timeouts| duration_or(&timeouts.$operation, default))
                }
            )+

            /// Checks the attribute `timeouts`.
            pub(crate) fn check(timeouts: &Value<Self>, problems: &mut Problems) {
                let Value::Value(timeouts) = timeouts else { return };
                let path = AttributePath::new("timeouts");
                $(check_at_least(SHORTEST_TIMEOUT, &timeouts.$operation, path.clone().attribute(stringify!($operation)), problems);)+
            }
        }
    };
}

timeouts! {
    /// Of a resource that waits at create and update. `scope` names the parts of the operation.
    WaitTimeouts(default, scope) {
        create: "Timeout of the whole create{scope}. Default `{default}`; minimum `1s`.",
        update: "Timeout of the whole update{scope}. Default `{default}`; minimum `1s`.",
    }
}

timeouts! {
    /// Of a data source.
    ReadTimeout(default) { read: "Timeout of the whole read. Default `{default}`; minimum `1s`." }
}

timeouts! {
    /// Of a resource that waits at destroy. Destroy receives the value of the last apply.
    DeleteTimeout(default) {
        delete: "Timeout of the whole drain: connections, the check of the peers, the request, and the wait for the exit of the process. \
                 Default `{default}`; minimum `1s`; days are allowed, as in `2d`. With `on_timeout = \"force\"` it is the timeout of \
                 the graceful part. Destroy uses the value of the last apply.",
    }
}

timeouts! {
    /// Of an action.
    InvokeTimeout(default) { invoke: "Timeout of the whole action. Default `{default}`; minimum `1s`." }
}

/// The minimum of a timeout.
const SHORTEST_TIMEOUT: (Duration, &str) = (Duration::from_secs(1), "1s");

/// The minimum of a limit of one connection, and of a delay between two attempts.
pub(super) const SHORTEST_DELAY: (Duration, &str) = (Duration::from_millis(100), "100ms");

/// Rejects invalid and too short durations. Accepts null and unknown.
pub(super) fn check_at_least(
    (least, text_of_least): (Duration, &str),
    value: &Value<String>,
    path: AttributePath,
    problems: &mut Problems,
) {
    check_duration(value, path.clone(), problems);
    if let Value::Value(text) = value
        && duration::parse(text).is_ok_and(|time| time < least)
    {
        problems.add(values::duration_too_short(path, text, text_of_least));
    }
}

/// The duration of an attribute; `default` if it is null, or invalid, which [`check_duration`] rejects.
pub(crate) fn duration_or(value: &Value<String>, default: Duration) -> Duration {
    value.as_ref_option().and_then(|text| duration::parse(text).ok()).unwrap_or(default)
}

/// Rejects invalid durations. Accepts null and unknown.
///
/// The text contains the attribute, because Terraform points at the outer object of a nested attribute.
pub(crate) fn check_duration(value: &Value<String>, path: AttributePath, problems: &mut Problems) {
    if let Value::Value(text) = value
        && let Err(error) = duration::parse(text)
    {
        let named = format!("`{path}`: {text:?}");
        problems.add(values::duration(&named, error, duration::ACCEPTED).at(path));
    }
}

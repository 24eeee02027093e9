//! The `retry` object.

use std::time::Duration;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Number, Value, number, text},
};

use super::{
    number::{check_whole, whole},
    object::object,
    timeouts::{SHORTEST_DELAY, check_at_least, duration_or},
};
use crate::{
    duration::{self, human},
    explain::values,
    fleet::Retry,
};

const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(10);

object! {
    /// `retry = { attempts, min_delay, max_delay }`. A value that a resource omits is taken from the provider block.
    #[derive(Debug)]
    pub(crate) struct RetryArgs(attempts_default) {
        attempts: Value<Number> = number => format!(
            "Number of consecutive failed connection attempts before the error `connect_failed`. Default: {attempts_default}. \
             A rejected login or host key is never retried."
        ), check_whole(1..=1_000_000);
        min_delay: Value<String> = text => format!(
            "Delay after the first failed attempt. Each further attempt doubles the delay. Default `{}ms`; minimum `100ms`.",
            MIN_DELAY.as_millis()
        ), check_at_least(SHORTEST_DELAY);
        max_delay: Value<String> = text => format!(
            "Maximum delay between two attempts. Default `{}`; minimum `100ms`, and not below `min_delay`.",
            human(MAX_DELAY)
        ), check_at_least(SHORTEST_DELAY);
    }
    check: RetryArgs::check_order;
}

impl RetryArgs {
    fn check_order(&self, path: &AttributePath, problems: &mut Problems) {
        if let (Value::Value(min), Value::Value(max)) = (&self.min_delay, &self.max_delay)
            && let (Ok(shortest), Ok(longest)) = (duration::parse(min), duration::parse(max))
            && shortest > longest
            // Otherwise it has an error already.
            && longest >= SHORTEST_DELAY.0
        {
            let path = path.clone().attribute("min_delay");
            problems.add(values::min_delay_exceeds_max_delay(path, min, max));
        }
    }

    /// The policy. Precedence: this object, `outer` (of the provider block), default.
    pub(crate) fn resolve(this: Option<&Self>, outer: Option<&Self>, default_attempts: Option<u32>) -> Retry {
        let layers = [this, outer].into_iter().flatten();
        let attempts = layers.clone().find_map(|layer| whole(&layer.attempts));
        let pick = |field: fn(&Self) -> &Value<String>, default| {
            let set = layers.clone().map(field).find(|value| value.is_value());
            // A value that became known only in the apply was not checked.
            set.map_or(default, |value| duration_or(value, default)).max(SHORTEST_DELAY.0)
        };
        Retry {
            attempts: attempts.or(default_attempts),
            min_delay: pick(|layer| &layer.min_delay, MIN_DELAY),
            max_delay: pick(|layer| &layer.max_delay, MAX_DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::Problem;

    use super::*;
    use crate::config::object::Object as _;

    #[test]
    fn min_delay_above_max_delay_is_refused() {
        let text = |text: &str| if text.is_empty() { Value::Null } else { Value::Value(text.to_owned()) };
        let errors = |min, max| {
            let retry = RetryArgs { min_delay: text(min), max_delay: text(max), ..RetryArgs::default() };
            let mut problems = Problems::default();
            retry.check_at(&AttributePath::new("retry"), &mut problems);
            problems.iter().map(Problem::detail).collect::<Vec<_>>()
        };
        for (min, max) in [("10s", "10s"), ("1s", "1m"), ("20s", ""), ("", "1s")] {
            assert_eq!(errors(min, max), [""; 0], "{min} {max}");
        }
        let expected =
            "`retry.min_delay` is \"20s\"; it must not exceed `max_delay` (10s).\n\nCode: invalid_config";
        assert_eq!(errors("20s", "10s"), [expected]);
    }

    #[test]
    fn resource_retry_overrides_provider_per_attribute() {
        let resource = RetryArgs { attempts: Value::Value(Number::Whole(3)), ..RetryArgs::default() };
        let provider = RetryArgs {
            attempts: Value::Value(Number::Whole(7)),
            min_delay: Value::Value("2s".into()),
            max_delay: Value::Null,
        };
        let retry = RetryArgs::resolve(Some(&resource), Some(&provider), None);
        let wanted = Retry { attempts: Some(3), min_delay: Duration::from_secs(2), max_delay: MAX_DELAY };
        assert_eq!(retry, wanted);
        assert_eq!(RetryArgs::resolve(None, None, Some(10)).attempts, Some(10));
    }
}

//! The `retry` object.

use grit_plugin::schema::{Number, Value, number};

use super::{
    number::{check_whole, whole},
    object::object,
};
use crate::fleet::Retry;

object! {
    /// `retry = { attempts }`. A value that a resource omits is taken from the provider block.
    #[derive(Debug)]
    pub(crate) struct RetryArgs(attempts_default) {
        attempts: Value<Number> = number => format!(
            "Number of consecutive failed connection attempts before the error `connect_failed`. Default: {attempts_default}. \
             A rejected login or host key is never retried."
        ), check_whole(1..=1_000_000);
    }
}

impl RetryArgs {
    /// The policy. Precedence: this object, `outer` (of the provider block), default.
    pub(crate) fn resolve(this: Option<&Self>, outer: Option<&Self>, default_attempts: Option<u32>) -> Retry {
        let attempts = [this, outer].into_iter().flatten().find_map(|layer| whole(&layer.attempts));
        Retry { attempts: attempts.or(default_attempts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_of_a_resource_overrides_the_provider_block() {
        let of = |attempts| RetryArgs { attempts: Value::Value(Number::Whole(attempts)) };
        assert_eq!(RetryArgs::resolve(Some(&of(3)), Some(&of(7)), None).attempts, Some(3));
        assert_eq!(RetryArgs::resolve(Some(&RetryArgs::default()), Some(&of(7)), None).attempts, Some(7));
        assert_eq!(RetryArgs::resolve(None, None, Some(10)).attempts, Some(10));
    }
}

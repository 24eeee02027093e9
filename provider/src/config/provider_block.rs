//! The provider block.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::ssh::{self, SshArgs};
use crate::{
    config::{
        number::{check_whole, whole},
        retry::RetryArgs,
    },
    schema::{
        AttributePath, AttributeType, Diagnostics, Number, Schema, Value, optional, schema as schema_of,
    },
};

/// The default and maximum of `max_parallel`: the transport's limit of parallel handshakes.
const MAX_PARALLEL: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// Has no `Debug`, because it contains secrets.
#[derive(Default, Serialize, Deserialize)]
pub struct ProviderArgs {
    ssh: Value<SshArgs>,
    retry: Value<RetryArgs>,
    max_parallel: Value<Number>,
}

pub(crate) fn schema() -> Schema {
    schema_of(
        0,
        "Zero-downtime updates of GitLab Runner managers inside `terraform apply`.",
        [
            ("ssh", ssh::schema()),
            (
                "retry",
                optional(
                    AttributeType::AttributeSingle(RetryArgs::attributes("see the resources")),
                    "Retries of failed connections. `retry` of a resource takes precedence.",
                ),
            ),
            (
                "max_parallel",
                optional(
                    AttributeType::Number,
                    "Maximum number of SSH connections that are established at the same time. Default 64; larger values have the effect \
                     of 64. At most 8 of them are established to one server.",
                ),
            ),
        ],
    )
}

impl ProviderArgs {
    /// Sets missing values from environment variables.
    #[must_use]
    pub(crate) fn or_environment(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let ssh = match self.ssh {
            Value::Value(ssh) => ssh,
            Value::Null => SshArgs::default(),
            Value::Unknown => return self,
        };
        Self { ssh: Value::Value(ssh.or_environment(variable)), ..self }
    }

    /// Checks all values that can be checked without a connection.
    pub(crate) fn check(&self, diags: &mut Diagnostics) {
        if let Value::Value(ssh) = &self.ssh {
            ssh.check(&AttributePath::new("ssh"), diags);
        }
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        check_whole(&self.max_parallel, 1..=10_000, AttributePath::new("max_parallel"), diags);
    }

    /// The `ssh` object, the `retry` object, and the maximum number of parallel handshakes.
    pub(crate) fn into_parts(self) -> (SshArgs, Option<RetryArgs>, usize) {
        let max = whole(&self.max_parallel).and_then(NonZeroUsize::new).unwrap_or(MAX_PARALLEL);
        (self.ssh.unwrap_or_default(), self.retry.as_option(), max.min(MAX_PARALLEL).get())
    }
}

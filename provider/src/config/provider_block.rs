//! The attributes of the provider block.

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

/// Managers that one operation works on at a time. Equal to the transport's limit of handshakes: more would only queue there.
const MAX_PARALLEL: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// The provider block. It has no `Debug`: it holds secrets.
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
    /// Fills what is not set from the environment, whose variables `variable` reads by name.
    #[must_use]
    pub(crate) fn or_environment(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let ssh = match self.ssh {
            Value::Value(ssh) => ssh,
            Value::Null => SshArgs::default(),
            Value::Unknown => return self,
        };
        Self { ssh: Value::Value(ssh.or_environment(variable)), ..self }
    }

    /// Everything that can be known to be wrong without a connection.
    pub(crate) fn check(&self, diags: &mut Diagnostics) {
        if let Value::Value(ssh) = &self.ssh {
            ssh.check(&AttributePath::new("ssh"), diags);
        }
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        check_whole(&self.max_parallel, 1..=10_000, AttributePath::new("max_parallel"), diags);
    }

    /// The `ssh` object, the `retry` object, and how many handshakes run at once.
    pub(crate) fn into_parts(self) -> (SshArgs, Option<RetryArgs>, usize) {
        // Whoever works on few managers at a time wants few logins at a time, too.
        let max = whole(&self.max_parallel).and_then(NonZeroUsize::new).unwrap_or(MAX_PARALLEL);
        (self.ssh.unwrap_or_default(), self.retry.as_option(), max.min(MAX_PARALLEL).get())
    }
}

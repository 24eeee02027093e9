//! The attributes of the provider block.

use std::{num::NonZeroUsize, path::PathBuf};

use serde::Deserialize;

use super::ssh::{self, SshArgs};
use crate::{
    config::{
        number::{check_whole, whole},
        retry::RetryArgs,
    },
    schema::{
        AttributePath, AttributeType, Diagnostics, Number, Schema, Value, optional, schema as schema_of,
    },
    transport::SshOptions,
};

/// Managers that one operation works on at a time. Equal to the transport's limit of handshakes: more would only queue there.
const MAX_PARALLEL: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// The provider block. It has no `Debug`: it holds secrets.
#[derive(Default, Deserialize)]
pub struct ProviderArgs {
    ssh: Value<SshArgs>,
    pub(crate) retry: Value<RetryArgs>,
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
                    "Maximum number of SSH connections that are established at the same time, at most 64. Default 64. The limit for one \
                     server is 8.",
                ),
            ),
        ],
    )
}

impl ProviderArgs {
    /// Everything that can be known to be wrong without a connection. `home` is what `~` in paths stands for.
    pub(crate) fn check(&self, home: Option<PathBuf>, diags: &mut Diagnostics) {
        if let Value::Value(ssh) = &self.ssh {
            ssh.check(&AttributePath::new("ssh"), home, diags);
        }
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        check_whole(&self.max_parallel, 1..=10_000, AttributePath::new("max_parallel"), diags);
    }

    pub(crate) fn is_known(&self) -> bool {
        let ssh = match &self.ssh {
            Value::Unknown => false,
            Value::Null => true,
            Value::Value(ssh) => ssh.is_known(),
        };
        let retry = match &self.retry {
            Value::Unknown => false,
            Value::Null => true,
            Value::Value(retry) => retry.is_known(),
        };
        ssh && retry && !self.max_parallel.is_unknown()
    }

    pub(crate) fn max_parallel(&self) -> NonZeroUsize {
        whole(&self.max_parallel).and_then(NonZeroUsize::new).unwrap_or(MAX_PARALLEL)
    }

    pub(crate) fn ssh_options(&self) -> SshOptions {
        let options = self.ssh.as_ref_option().map(SshArgs::options).unwrap_or_default();
        // Who works on few managers at a time wants few logins at a time, too.
        SshOptions { max_handshakes: Some(self.max_parallel().min(MAX_PARALLEL).get()), ..options }
    }
}

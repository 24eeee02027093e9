//! An action (Terraform 1.14): work without state, which `terraform apply -invoke=action.TYPE.NAME` runs.

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{Diagnostics, Schema};

/// An action: its schema, its check, and its work. Every `None` needs an error in `diags`.
#[async_trait]
pub trait Action: Send + Sync + 'static {
    /// The block `config` as a struct of [`Value`](super::Value)s, one field for each attribute.
    type Config: DeserializeOwned + Send;

    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;

    /// Checks the configuration, in validate, in plan and before the work, without touching the network. Values may be unknown.
    async fn validate(&self, diags: &mut Diagnostics, config: Self::Config) -> Option<()>;

    /// Does the work. All values are known and were checked. Each wait selects on [`call()`](crate::call)`.stop`.
    async fn invoke(&self, diags: &mut Diagnostics, config: Self::Config, progress: &Progress) -> Option<()>;
}

/// Sends lines that Terraform prints while an action runs.
pub struct Progress {
    send: Box<dyn Fn(String) + Send + Sync>,
    stop: CancellationToken,
}

impl Progress {
    /// Passes the lines to `send`, until `stop` is cancelled.
    pub fn new(send: impl Fn(String) + Send + Sync + 'static, stop: CancellationToken) -> Self {
        Self { send: Box::new(send), stop }
    }

    /// Sends a line. After a stop it sends none: Terraform 1.14 and 1.15 panic if a line comes between the stop and the result.
    pub fn report(&self, line: String) {
        if !self.stop.is_cancelled() {
            (self.send)(line);
        }
    }
}

//! The provider block.

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use super::{Diagnostics, Schema};

/// The provider block: its schema, validation, and configuration.
///
/// Terraform configures a process before the first call that needs it. `validate` can run without `configure`.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The block as a struct of [`Value`](super::Value)s. All can be null, and unknown at plan.
    type Config: DeserializeOwned + Send;

    /// The schema of the block. `None` needs an error in `diags`.
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;

    /// Checks the block. Opens no connection. `None` needs an error in `diags`.
    async fn validate(&self, diags: &mut Diagnostics, config: Self::Config) -> Option<()> {
        let _ = (diags, config);
        Some(())
    }

    /// Stores the configuration. Opens no connection. Values can be unknown: a later process receives them.
    async fn configure(
        &self,
        diags: &mut Diagnostics,
        config: Self::Config,
        terraform_version: &str,
    ) -> Option<()>;
}

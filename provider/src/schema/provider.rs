//! The provider as a whole: its configuration block.

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use super::{Diagnostics, Schema};

/// The provider's configuration block: its schema, and what happens when Terraform hands it over.
///
/// Terraform configures a process once, before the first call that needs it; `validate` also runs without a configuration following.
/// How resources learn of the configuration is the implementer's choice, for example a shared cell given to both.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The block as a struct of [`Value`](super::Value)s, one field for each attribute. Any of them may be null, and at plan also unknown.
    type Config: DeserializeOwned + Send;

    /// The schema of the block. `None` needs an error in `diags`.
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;

    /// Checks the block, without touching the network. `None` needs an error in `diags`.
    async fn validate(&self, diags: &mut Diagnostics, config: Self::Config) -> Option<()> {
        let _ = (diags, config);
        Some(())
    }

    /// Takes the configuration over, without touching the network. Attributes may be unknown: then a later process gets them known.
    async fn configure(
        &self,
        diags: &mut Diagnostics,
        config: Self::Config,
        terraform_version: &str,
    ) -> Option<()>;
}

//! Managed resources and data sources.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{AttributePath, Diagnostics, Schema};

/// A managed resource.
///
/// # Rules for its calls
///
/// - Select on [`call()`](crate::call)`.stop` in every wait of create, update, destroy and read.
/// - `None` needs an error in the diagnostics; otherwise the error is a provider bug. A `read` that found no object calls
///   [`Call::gone`](crate::Call::gone), and returns `None`.
/// - A `create` with a side effect stores it immediately with [`Call::checkpoint`](crate::Call::checkpoint). If it fails later, it
///   returns its partial state with the error (or nothing: then the checkpoint counts), and Terraform keeps the resource as tainted.
///   Without either, nothing is kept.
/// - An `update` that fails returns the actual state; or `None`, and the checkpoint or the prior state is kept.
/// - A `destroy` that fails or is stopped returns `None` and an error: Terraform keeps the object.
/// - Neither `validate` nor the plan calls use the network.
/// - `call()` finds its call through the task: clone the token before `tokio::spawn`.
#[async_trait]
pub trait Resource: Send + Sync {
    /// The state, and the configuration.
    type State<'a>: Serialize + Deserialize<'a> + Send;

    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;

    /// Checks the configuration. Values can be unknown.
    async fn validate<'a>(&self, diags: &mut Diagnostics, config: Self::State<'a>) -> Option<()> {
        let _ = (diags, config);
        Some(())
    }

    /// The current state of an object. Default: the state as it is stored.
    async fn read<'a>(&self, diags: &mut Diagnostics, state: Self::State<'a>) -> Option<Self::State<'a>> {
        let _ = diags;
        Some(state)
    }

    async fn plan_create<'a>(
        &self,
        diags: &mut Diagnostics,
        proposed: Self::State<'a>,
    ) -> Option<Self::State<'a>>;

    /// The planned state, and the attributes whose change replaces the object.
    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: Self::State<'a>,
        proposed: Self::State<'a>,
    ) -> Option<(Self::State<'a>, Vec<AttributePath>)>;

    /// Can reject a destroy, or warn.
    async fn plan_destroy<'a>(&self, diags: &mut Diagnostics, prior: Self::State<'a>) -> Option<()> {
        let _ = (diags, prior);
        Some(())
    }

    async fn create<'a>(&self, diags: &mut Diagnostics, planned: Self::State<'a>) -> Option<Self::State<'a>>;

    async fn update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: Self::State<'a>,
        planned: Self::State<'a>,
    ) -> Option<Self::State<'a>>;

    /// Default: only the state is removed.
    async fn destroy<'a>(&self, diags: &mut Diagnostics, prior: Self::State<'a>) -> Option<()> {
        let _ = (diags, prior);
        Some(())
    }

    /// The state of an existing object. `id`: the text of the command or the block, or the attribute of [`identity`](Self::identity).
    async fn import<'a>(&self, diags: &mut Diagnostics, id: String) -> Option<Self::State<'a>>;

    /// The attribute that identifies an object: a string of the state. `import` gets its value, from an id or from an identity block
    /// (Terraform 1.12). An object in which it is null or unknown has no identity.
    fn identity(&self) -> Option<&'static str> {
        None
    }

    /// Converts a state of an older schema version to the current version.
    ///
    /// `None` without an error in `diags`: the version is not supported.
    fn upgrade_json(&self, diags: &mut Diagnostics, version: i64, state: Json) -> Option<Json> {
        let _ = (diags, version, state);
        None
    }

    /// Converts an object of another type (a `moved` block across types) to a state of the current version.
    ///
    /// `None` without an error in `diags`: the type is not supported.
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        let _ = (diags, source);
        None
    }

    /// Receives each stored state before anything is planned, also if its version is current.
    ///
    /// Called once for each object and process. With it, a resource knows what is in the state. It must be fast.
    fn observe_stored_state(&self, state: &Json) {
        let _ = state;
    }
}

#[async_trait]
pub trait DataSource: Send + Sync {
    /// The configuration, and the result.
    type State<'a>: Serialize + Deserialize<'a> + Send;

    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;

    /// Checks the configuration. Values can be unknown.
    async fn validate<'a>(&self, diags: &mut Diagnostics, config: Self::State<'a>) -> Option<()> {
        let _ = (diags, config);
        Some(())
    }

    async fn read<'a>(&self, diags: &mut Diagnostics, config: Self::State<'a>) -> Option<Self::State<'a>>;
}

/// The source of a `moved` block from another type.
#[derive(Debug, Clone)]
pub struct MoveSource {
    /// For example `terraform.io/builtin/terraform`.
    pub provider_address: String,
    /// For example `terraform_data`.
    pub type_name: String,
    pub state: Json,
}

//! The types of a provider: what it implements for Terraform.

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use crate::{
    problem::Problems,
    schema::{AttributePath, Schema},
};

/// The provider block, a data source or an action: a configuration, and one call with it.
///
/// | of                  | `run`                                                                                         | its result     |
/// |---------------------|-----------------------------------------------------------------------------------------------|----------------|
/// | the provider block  | stores the configuration, which can be null or unknown, and opens no connection; Terraform configures a process before the first call that needs it, but can check without it | ignored |
/// | a data source       | reads                                                                                         | the attributes |
/// | an action           | does the work, after another check, and reports with [`Call::progress`](crate::Call)          | ignored        |
#[async_trait]
pub trait Block: Send + Sync + 'static {
    /// The block as a struct of [`Value`](crate::schema::Value)s, one field for each attribute. All can be null, and unknown in a plan.
    type Config: DeserializeOwned + Send;
    /// The result.
    type Output: Serialize + Send;

    /// The attributes of the block.
    fn schema(&self) -> Schema;

    /// Checks the configuration without the network. Values can be unknown.
    async fn check(&self, config: Self::Config) -> Result<(), Problems> {
        let _ = config;
        Ok(())
    }

    /// Does the work. Each wait selects on [`call()`](crate::call)`.stop`.
    async fn run(&self, config: Self::Config) -> Result<Self::Output, Problems>;
}

/// A managed resource. No object can be imported.
///
/// # Rules for its calls
///
/// - Select on [`call()`](crate::call)`.stop` in every wait of create, update, destroy and read.
/// - A `create` with a side effect stores it immediately with [`Call::checkpoint`](crate::Call::checkpoint). If it fails later, Terraform
///   keeps the resource as tainted. Without a checkpoint, nothing is kept.
/// - If an `update` fails, its last checkpoint is kept, or the prior state.
/// - If a `destroy` fails or is stopped, Terraform keeps the object.
/// - Neither `validate` nor the plan calls use the network.
/// - `call()` finds its call through the task: clone the token before `tokio::spawn`.
#[async_trait]
pub trait Resource: Send + Sync + 'static {
    /// The state, and the configuration.
    type State: Serialize + DeserializeOwned + Send;

    /// The attributes of the resource.
    fn schema(&self) -> Schema;

    /// Checks the configuration. Values can be unknown.
    async fn validate(&self, config: Self::State) -> Result<(), Problems> {
        let _ = config;
        Ok(())
    }

    /// The current state of an object; `None` if it does not exist. Default: the state as it is stored.
    async fn read(&self, state: Self::State) -> Result<Option<Self::State>, Problems> {
        Ok(Some(state))
    }

    /// The planned state of a new object.
    async fn plan_create(&self, proposed: Self::State) -> Result<Self::State, Problems>;

    /// The planned state, and the attributes whose change replaces the object.
    async fn plan_update(
        &self,
        prior: Self::State,
        proposed: Self::State,
    ) -> Result<(Self::State, Vec<AttributePath>), Problems>;

    /// Can reject a destroy, or warn.
    async fn plan_destroy(&self, prior: Self::State) -> Result<(), Problems> {
        let _ = prior;
        Ok(())
    }

    /// Creates an object, and returns its state.
    async fn create(&self, planned: Self::State) -> Result<Self::State, Problems>;

    /// Changes an object in place, and returns its state.
    async fn update(&self, prior: Self::State, planned: Self::State) -> Result<Self::State, Problems>;

    /// Default: only the state is removed.
    async fn destroy(&self, prior: Self::State) -> Result<(), Problems> {
        let _ = prior;
        Ok(())
    }

    /// Receives each stored state before anything is planned.
    ///
    /// Called once for each object and process. With it, a resource knows what is in the state. It must be fast.
    fn observe_stored_state(&self, state: &Json) {
        let _ = state;
    }
}

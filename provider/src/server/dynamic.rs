//! Object-safe versions of the typed traits: values are encoded, so that resources of different types fit into one map.

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    explain::functions,
    schema::{
        Action, AttributePath, DataSource, Diagnostics, Function, FunctionError, FunctionSchema, MoveSource,
        Progress, Provider, Resource, ResourceExt, Schema,
    },
    wire::{self, Encoded, Raw, encode},
};

/// A state and the private data beside it.
pub(super) type StateAndPrivate = (Encoded, Encoded);

/// A managed resource. The methods are those of [`Resource`] and [`ResourceExt`].
#[async_trait]
pub(super) trait ErasedResource: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    fn identity(&self) -> Option<&'static str>;
    fn upgrade_json(&self, diags: &mut Diagnostics, version: i64, state: Json) -> Option<Json>;
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json>;
    fn observe_stored_state(&self, state: &Json);
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn read(
        &self,
        diags: &mut Diagnostics,
        state: &Raw,
        private: &Raw,
        meta: &Raw,
    ) -> Option<StateAndPrivate>;
    async fn plan_create(&self, diags: &mut Diagnostics, change: &Change) -> Option<StateAndPrivate>;
    async fn plan_update(
        &self,
        diags: &mut Diagnostics,
        change: &Change,
    ) -> Option<(StateAndPrivate, Vec<AttributePath>)>;
    async fn plan_destroy(&self, diags: &mut Diagnostics, change: &Change) -> Option<Encoded>;
    async fn create(&self, diags: &mut Diagnostics, change: &Change) -> Option<StateAndPrivate>;
    async fn update(&self, diags: &mut Diagnostics, change: &Change) -> Option<StateAndPrivate>;
    async fn destroy(&self, diags: &mut Diagnostics, change: &Change) -> Option<()>;
    async fn import(&self, diags: &mut Diagnostics, id: String) -> Option<StateAndPrivate>;
}

/// The arguments of plan and apply.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) prior: Raw,
    /// The proposed state while planning, the planned state while applying.
    pub(super) next: Raw,
    pub(super) config: Raw,
    /// The prior private data while planning, the planned private data while applying.
    pub(super) private: Raw,
    pub(super) meta: Raw,
}

/// A data source.
#[async_trait]
pub(super) trait ErasedDataSource: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn read(&self, diags: &mut Diagnostics, config: &Raw, meta: &Raw) -> Option<Encoded>;
}

/// A function, whatever its types.
pub(super) trait ErasedFunction: Send + Sync {
    fn schema(&self) -> FunctionSchema;
    fn call(&self, arguments: &[Raw]) -> Result<Encoded, FunctionError>;
}

/// An action.
#[async_trait]
pub(super) trait ErasedAction: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn invoke(&self, diags: &mut Diagnostics, config: &Raw, progress: &Progress) -> Option<()>;
}

/// The provider block.
#[async_trait]
pub(super) trait ErasedProvider: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn configure(&self, diags: &mut Diagnostics, config: &Raw, terraform_version: &str) -> Option<()>;
}

#[async_trait]
impl<T: ResourceExt> ErasedResource for T {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema> {
        Resource::schema(self, diags)
    }

    fn identity(&self) -> Option<&'static str> {
        ResourceExt::identity(self)
    }

    fn upgrade_json(&self, diags: &mut Diagnostics, version: i64, state: Json) -> Option<Json> {
        ResourceExt::upgrade_json(self, diags, version, state)
    }

    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        ResourceExt::move_json(self, diags, source)
    }

    fn observe_stored_state(&self, state: &Json) {
        ResourceExt::observe_stored_state(self, state);
    }

    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()> {
        let config = config.decode("the configuration", diags)?;
        Resource::validate(self, diags, config).await
    }

    async fn read(
        &self,
        diags: &mut Diagnostics,
        stored: &Raw,
        stored_private: &Raw,
        stored_meta: &Raw,
    ) -> Option<StateAndPrivate> {
        let current = stored.decode("the state", diags)?;
        let private = stored_private.decode("the private data", diags)?;
        let meta = stored_meta.decode("provider_meta", diags)?;
        let result = Resource::read(self, diags, current, private, meta).await?;
        encoded(&result, diags)
    }

    async fn plan_create(&self, diags: &mut Diagnostics, change: &Change) -> Option<StateAndPrivate> {
        let proposed = change.next.decode("the proposed state", diags)?;
        let config = change.config.decode("the configuration", diags)?;
        let meta = change.meta.decode("provider_meta", diags)?;
        let result = Resource::plan_create(self, diags, proposed, config, meta).await?;
        encoded(&result, diags)
    }

    async fn plan_update(
        &self,
        diags: &mut Diagnostics,
        change: &Change,
    ) -> Option<(StateAndPrivate, Vec<AttributePath>)> {
        let prior = change.prior.decode("the prior state", diags)?;
        let proposed = change.next.decode("the proposed state", diags)?;
        let config = change.config.decode("the configuration", diags)?;
        let private = change.private.decode("the private data", diags)?;
        let meta = change.meta.decode("provider_meta", diags)?;
        let (planned, private, replacing) =
            Resource::plan_update(self, diags, prior, proposed, config, private, meta).await?;
        Some((encoded(&(planned, private), diags)?, replacing))
    }

    async fn plan_destroy(&self, diags: &mut Diagnostics, change: &Change) -> Option<Encoded> {
        let prior = change.prior.decode("the prior state", diags)?;
        let private = change.private.decode("the private data", diags)?;
        let meta = change.meta.decode("provider_meta", diags)?;
        let private = Resource::plan_destroy(self, diags, prior, private, meta).await?;
        encode(&private, "the private data", diags)
    }

    async fn create(&self, diags: &mut Diagnostics, change: &Change) -> Option<StateAndPrivate> {
        let planned = change.next.decode("the planned state", diags)?;
        let config = change.config.decode("the configuration", diags)?;
        let private = change.private.decode("the private data", diags)?;
        let meta = change.meta.decode("provider_meta", diags)?;
        let result = Resource::create(self, diags, planned, config, private, meta).await?;
        encoded(&result, diags)
    }

    async fn update(&self, diags: &mut Diagnostics, change: &Change) -> Option<StateAndPrivate> {
        let prior = change.prior.decode("the prior state", diags)?;
        let planned = change.next.decode("the planned state", diags)?;
        let config = change.config.decode("the configuration", diags)?;
        let private = change.private.decode("the private data", diags)?;
        let meta = change.meta.decode("provider_meta", diags)?;
        let result = Resource::update(self, diags, prior, planned, config, private, meta).await?;
        encoded(&result, diags)
    }

    async fn destroy(&self, diags: &mut Diagnostics, change: &Change) -> Option<()> {
        let prior = change.prior.decode("the prior state", diags)?;
        let private = change.private.decode("the private data", diags)?;
        let meta = change.meta.decode("provider_meta", diags)?;
        Resource::destroy(self, diags, prior, private, meta).await
    }

    async fn import(&self, diags: &mut Diagnostics, id: String) -> Option<StateAndPrivate> {
        let result = Resource::import(self, diags, id).await?;
        encoded(&result, diags)
    }
}

#[async_trait]
impl<T: DataSource> ErasedDataSource for T {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema> {
        DataSource::schema(self, diags)
    }

    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()> {
        let config = config.decode("the configuration", diags)?;
        DataSource::validate(self, diags, config).await
    }

    async fn read(&self, diags: &mut Diagnostics, config: &Raw, meta: &Raw) -> Option<Encoded> {
        let config = config.decode("the configuration", diags)?;
        let meta = meta.decode("provider_meta", diags)?;
        let result = DataSource::read(self, diags, config, meta).await?;
        encode(&result, "the state", diags)
    }
}

impl<T: Function> ErasedFunction for T {
    fn schema(&self) -> FunctionSchema {
        Function::schema(self)
    }

    fn call(&self, arguments: &[Raw]) -> Result<Encoded, FunctionError> {
        let arguments = rmp_serde::from_slice(wire::array(arguments).as_slice())
            .map_err(|error| functions::cannot_decode(&error))?;
        let result = Function::call(self, arguments)?;
        rmp_serde::to_vec_named(&result).map_err(|error| functions::cannot_encode(&error))
    }
}

#[async_trait]
impl<T: Action> ErasedAction for T {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema> {
        Action::schema(self, diags)
    }

    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()> {
        let config = config.decode("the configuration", diags)?;
        Action::validate(self, diags, config).await
    }

    async fn invoke(&self, diags: &mut Diagnostics, config: &Raw, progress: &Progress) -> Option<()> {
        let config = config.decode("the configuration", diags)?;
        Action::invoke(self, diags, config, progress).await
    }
}

#[async_trait]
impl<T: Provider> ErasedProvider for T {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema> {
        Provider::schema(self, diags)
    }

    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()> {
        let config = config.decode("the provider's configuration", diags)?;
        Provider::validate(self, diags, config).await
    }

    async fn configure(&self, diags: &mut Diagnostics, config: &Raw, terraform_version: &str) -> Option<()> {
        let config = config.decode("the provider's configuration", diags)?;
        Provider::configure(self, diags, config, terraform_version).await
    }
}

fn encoded<S: Serialize, P: Serialize>(
    (state, private): &(S, P),
    diags: &mut Diagnostics,
) -> Option<StateAndPrivate> {
    Some((encode(state, "the state", diags)?, encode(private, "the private data", diags)?))
}

//! Encoded values, and object-safe versions of the typed traits, which take them: so resources of different types fit into one map.

use async_trait::async_trait;
use grit_proto::tfplugin6 as pb;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::{
    problem::texts,
    schema::{
        Action, AttributePath, DataSource, Diagnostics, Function, FunctionError, FunctionSchema, MoveSource,
        Progress, Provider, Resource, Schema,
    },
    wire::{Encoded, NIL, encode},
};

/// A result, in the diagnostic of a failed encoding.
const STATE: &str = "the state";

/// A managed resource. The methods are those of [`Resource`].
#[async_trait]
pub(super) trait ErasedResource: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    fn identity(&self) -> Option<&'static str>;
    fn upgrade_json(&self, diags: &mut Diagnostics, version: i64, state: Json) -> Option<Json>;
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json>;
    fn observe_stored_state(&self, state: &Json);
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn read(&self, diags: &mut Diagnostics, state: &Raw) -> Option<Encoded>;
    async fn plan_create(&self, diags: &mut Diagnostics, proposed: &Raw) -> Option<Encoded>;
    async fn plan_update(
        &self,
        diags: &mut Diagnostics,
        change: &Change,
    ) -> Option<(Encoded, Vec<AttributePath>)>;
    async fn plan_destroy(&self, diags: &mut Diagnostics, prior: &Raw) -> Option<()>;
    async fn create(&self, diags: &mut Diagnostics, planned: &Raw) -> Option<Encoded>;
    async fn update(&self, diags: &mut Diagnostics, change: &Change) -> Option<Encoded>;
    async fn destroy(&self, diags: &mut Diagnostics, prior: &Raw) -> Option<()>;
    async fn import(&self, diags: &mut Diagnostics, id: String) -> Option<Encoded>;
}

/// A value from Terraform, encoded: only its resource has its type.
#[derive(Debug, Clone)]
pub(super) struct Raw(Encoded);

impl Raw {
    pub(super) fn null() -> Self {
        Self(NIL.to_vec())
    }

    /// The value of a message: msgpack, or JSON, which the protocol allows.
    pub(super) fn from_message(
        value: Option<pb::DynamicValue>,
        what: &str,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let Some(value) = value else { return Some(Self::null()) };
        if !value.msgpack.is_empty() {
            return Some(Self(value.msgpack));
        }
        if value.json.is_empty() {
            return Some(Self::null());
        }
        let json =
            serde_json::from_slice::<serde_json::Value>(&value.json).map_err(|error| error.to_string());
        match json.and_then(|json| rmp_serde::to_vec_named(&json).map_err(|error| error.to_string())) {
            Ok(msgpack) => Some(Self(msgpack)),
            Err(error) => {
                texts::invalid_json(what, error).error(AttributePath::root(), diags);
                None
            }
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.0 == NIL
    }

    pub(super) fn into_encoded(self) -> Encoded {
        self.0
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Decodes a value that Terraform has checked against the schema. `what` names it in the diagnostic of a failure.
    pub(super) fn decode<'a, T: Deserialize<'a>>(&'a self, what: &str, diags: &mut Diagnostics) -> Option<T> {
        let error = match rmp_serde::from_slice(&self.0) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        texts::cannot_decode(what, error).error(AttributePath::root(), diags);
        None
    }
}

/// The values before and after a change.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) prior: Raw,
    /// The proposed state in a plan, the planned state in an apply.
    pub(super) next: Raw,
}

#[async_trait]
pub(super) trait ErasedDataSource: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn read(&self, diags: &mut Diagnostics, config: &Raw) -> Option<Encoded>;
}

/// A function, whatever its types.
pub(super) trait ErasedFunction: Send + Sync {
    fn schema(&self) -> FunctionSchema;
    fn call(&self, arguments: &[Raw]) -> Result<Encoded, FunctionError>;
}

#[async_trait]
pub(super) trait ErasedAction: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn invoke(&self, diags: &mut Diagnostics, config: &Raw, progress: &Progress) -> Option<()>;
}

#[async_trait]
pub(super) trait ErasedProvider: Send + Sync {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema>;
    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()>;
    async fn configure(&self, diags: &mut Diagnostics, config: &Raw, terraform_version: &str) -> Option<()>;
}

#[async_trait]
impl<T: Resource> ErasedResource for T {
    fn schema(&self, diags: &mut Diagnostics) -> Option<Schema> {
        Resource::schema(self, diags)
    }

    fn identity(&self) -> Option<&'static str> {
        Resource::identity(self)
    }

    fn upgrade_json(&self, diags: &mut Diagnostics, version: i64, state: Json) -> Option<Json> {
        Resource::upgrade_json(self, diags, version, state)
    }

    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        Resource::move_json(self, diags, source)
    }

    fn observe_stored_state(&self, state: &Json) {
        Resource::observe_stored_state(self, state);
    }

    async fn validate(&self, diags: &mut Diagnostics, config: &Raw) -> Option<()> {
        let config = config.decode("the configuration", diags)?;
        Resource::validate(self, diags, config).await
    }

    async fn read(&self, diags: &mut Diagnostics, state: &Raw) -> Option<Encoded> {
        let state = state.decode("the state", diags)?;
        let state = Resource::read(self, diags, state).await?;
        encode(&state, STATE, diags)
    }

    async fn plan_create(&self, diags: &mut Diagnostics, proposed: &Raw) -> Option<Encoded> {
        let proposed = proposed.decode("the proposed state", diags)?;
        let planned = Resource::plan_create(self, diags, proposed).await?;
        encode(&planned, STATE, diags)
    }

    async fn plan_update(
        &self,
        diags: &mut Diagnostics,
        change: &Change,
    ) -> Option<(Encoded, Vec<AttributePath>)> {
        let prior = change.prior.decode("the prior state", diags)?;
        let proposed = change.next.decode("the proposed state", diags)?;
        let (planned, replacing) = Resource::plan_update(self, diags, prior, proposed).await?;
        Some((encode(&planned, STATE, diags)?, replacing))
    }

    async fn plan_destroy(&self, diags: &mut Diagnostics, prior: &Raw) -> Option<()> {
        let prior = prior.decode("the prior state", diags)?;
        Resource::plan_destroy(self, diags, prior).await
    }

    async fn create(&self, diags: &mut Diagnostics, planned: &Raw) -> Option<Encoded> {
        let planned = planned.decode("the planned state", diags)?;
        let state = Resource::create(self, diags, planned).await?;
        encode(&state, STATE, diags)
    }

    async fn update(&self, diags: &mut Diagnostics, change: &Change) -> Option<Encoded> {
        let prior = change.prior.decode("the prior state", diags)?;
        let planned = change.next.decode("the planned state", diags)?;
        let state = Resource::update(self, diags, prior, planned).await?;
        encode(&state, STATE, diags)
    }

    async fn destroy(&self, diags: &mut Diagnostics, prior: &Raw) -> Option<()> {
        let prior = prior.decode("the prior state", diags)?;
        Resource::destroy(self, diags, prior).await
    }

    async fn import(&self, diags: &mut Diagnostics, id: String) -> Option<Encoded> {
        let state = Resource::import(self, diags, id).await?;
        encode(&state, STATE, diags)
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

    async fn read(&self, diags: &mut Diagnostics, config: &Raw) -> Option<Encoded> {
        let config = config.decode("the configuration", diags)?;
        let result = DataSource::read(self, diags, config).await?;
        encode(&result, STATE, diags)
    }
}

impl<T: Function> ErasedFunction for T {
    fn schema(&self) -> FunctionSchema {
        Function::schema(self)
    }

    fn call(&self, arguments: &[Raw]) -> Result<Encoded, FunctionError> {
        let arguments = rmp_serde::from_slice(array(arguments).as_slice())
            .map_err(|error| texts::undecoded_arguments(&error))?;
        let result = Function::call(self, arguments)?;
        rmp_serde::to_vec_named(&result).map_err(|error| texts::unencoded_result(&error))
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
        // Values that were unknown in the plan are checked here: Terraform neither validates nor plans the action again in the apply.
        ErasedAction::validate(self, diags, config).await?;
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

/// The values as one array.
fn array(values: &[Raw]) -> Raw {
    const ARRAY_32: u8 = 0xdd;
    let mut encoded = vec![ARRAY_32];
    encoded.extend(u32::try_from(values.len()).unwrap_or(u32::MAX).to_be_bytes());
    values.iter().for_each(|value| encoded.extend(&value.0));
    Raw(encoded)
}

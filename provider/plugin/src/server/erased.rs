//! Encoded values, and object-safe versions of the typed traits, which take them: so types with different values fit into one map.

use async_trait::async_trait;
use grit_proto::tfplugin6 as pb;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::{
    contract::{Block, Resource},
    problem::{Problem, Problems, texts},
    schema::{AttributePath, Schema},
    wire::{Encoded, NIL, encode},
};

const CONFIG: &str = "the configuration";
/// A result, in the diagnostic of a failed encoding.
const STATE: &str = "the state";
const PRIOR: &str = "the prior state";
const PROPOSED: &str = "the proposed state";
const PLANNED: &str = "the planned state";

/// A value from Terraform, encoded: only its type knows its fields.
#[derive(Debug, Clone)]
pub(super) struct Raw(Encoded);

impl Raw {
    pub(super) fn null() -> Self {
        Self(NIL.to_vec())
    }

    /// The value of a message: msgpack, or JSON, which the protocol allows. `what` names it in a failure.
    pub(super) fn from_message(value: Option<pb::DynamicValue>, what: &str) -> Result<Self, Problem> {
        let pb::DynamicValue { msgpack, json } = value.unwrap_or_default();
        if !msgpack.is_empty() {
            return Ok(Self(msgpack));
        }
        if json.is_empty() {
            return Ok(Self::null());
        }
        let json = serde_json::from_slice::<Json>(&json).map_err(|error| texts::invalid_json(what, error))?;
        Ok(Self(rmp_serde::to_vec_named(&json).map_err(|error| texts::invalid_json(what, error))?))
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

    /// Decodes a value that Terraform has checked against the schema. `what` names it in a failure.
    fn decode<T: DeserializeOwned>(&self, what: &str) -> Result<T, Problem> {
        rmp_serde::from_slice(&self.0).map_err(|error| texts::cannot_decode(what, error))
    }
}

/// The values before and after a change.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) prior: Raw,
    /// The proposed state in a plan, the planned state in an apply.
    pub(super) next: Raw,
}

/// The methods are those of [`Block`].
#[async_trait]
pub(super) trait ErasedBlock: Send + Sync {
    fn schema(&self) -> Schema;
    async fn check(&self, config: &Raw) -> Result<(), Problems>;
    async fn run(&self, config: &Raw) -> Result<Encoded, Problems>;
}

#[async_trait]
impl<T: Block> ErasedBlock for T {
    fn schema(&self) -> Schema {
        Block::schema(self)
    }

    async fn check(&self, config: &Raw) -> Result<(), Problems> {
        Block::check(self, config.decode(CONFIG)?).await
    }

    async fn run(&self, config: &Raw) -> Result<Encoded, Problems> {
        let output = Block::run(self, config.decode(CONFIG)?).await?;
        Ok(encode(&output, STATE)?)
    }
}

/// The methods are those of [`Resource`].
#[async_trait]
pub(super) trait ErasedResource: Send + Sync {
    fn schema(&self) -> Schema;
    fn observe_stored_state(&self, state: &Json);
    async fn validate(&self, config: &Raw) -> Result<(), Problems>;
    async fn read(&self, state: &Raw) -> Result<Option<Encoded>, Problems>;
    async fn plan_create(&self, proposed: &Raw) -> Result<Encoded, Problems>;
    async fn plan_update(&self, change: &Change) -> Result<(Encoded, Vec<AttributePath>), Problems>;
    async fn plan_destroy(&self, prior: &Raw) -> Result<(), Problems>;
    async fn create(&self, planned: &Raw) -> Result<Encoded, Problems>;
    async fn update(&self, change: &Change) -> Result<Encoded, Problems>;
    async fn destroy(&self, prior: &Raw) -> Result<(), Problems>;
}

#[async_trait]
impl<T: Resource> ErasedResource for T {
    fn schema(&self) -> Schema {
        Resource::schema(self)
    }

    fn observe_stored_state(&self, state: &Json) {
        Resource::observe_stored_state(self, state);
    }

    async fn validate(&self, config: &Raw) -> Result<(), Problems> {
        Resource::validate(self, config.decode(CONFIG)?).await
    }

    async fn read(&self, state: &Raw) -> Result<Option<Encoded>, Problems> {
        let state = Resource::read(self, state.decode(STATE)?).await?;
        Ok(state.map(|state| encode(&state, STATE)).transpose()?)
    }

    async fn plan_create(&self, proposed: &Raw) -> Result<Encoded, Problems> {
        let planned = Resource::plan_create(self, proposed.decode(PROPOSED)?).await?;
        Ok(encode(&planned, STATE)?)
    }

    async fn plan_update(&self, change: &Change) -> Result<(Encoded, Vec<AttributePath>), Problems> {
        let (prior, proposed) = (change.prior.decode(PRIOR)?, change.next.decode(PROPOSED)?);
        let (planned, replacing) = Resource::plan_update(self, prior, proposed).await?;
        Ok((encode(&planned, STATE)?, replacing))
    }

    async fn plan_destroy(&self, prior: &Raw) -> Result<(), Problems> {
        Resource::plan_destroy(self, prior.decode(PRIOR)?).await
    }

    async fn create(&self, planned: &Raw) -> Result<Encoded, Problems> {
        let state = Resource::create(self, planned.decode(PLANNED)?).await?;
        Ok(encode(&state, STATE)?)
    }

    async fn update(&self, change: &Change) -> Result<Encoded, Problems> {
        let (prior, planned) = (change.prior.decode(PRIOR)?, change.next.decode(PLANNED)?);
        let state = Resource::update(self, prior, planned).await?;
        Ok(encode(&state, STATE)?)
    }

    async fn destroy(&self, prior: &Raw) -> Result<(), Problems> {
        Resource::destroy(self, prior.decode(PRIOR)?).await
    }
}

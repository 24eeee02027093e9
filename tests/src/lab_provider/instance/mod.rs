//! `lab_instance` and `aws_instance`: a VM of the lab's cloud ([`crate::lab::cloud`]) under two names.
//!
//! `aws_instance` has the attributes of the resource of `hashicorp/aws`, so that tests apply the examples unmodified. As there, some changes stop
//! the instance and start it again, and its jobs are lost.
//!
//! `create` returns when the boot has begun. `destroy` returns when no process of the host is left. So the lab's event log shows the removal
//! of an instance in order, also for the deposed half of a replacement.

mod aws;
mod lab;

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource,
    schema::{AttributePath, Schema, Value},
};
use serde::{Serialize, de::DeserializeOwned};

pub use self::{aws::AwsInstance, lab::LabInstance};
use crate::lab::cloud::{Instance, api};
use crate::lab_provider::failed;

/// The environment variable that contains the cloud's URL if the provider block has none.
pub const CLOUD: &str = "LAB_CLOUD";

/// The cloud's URL, shared by all resources. It comes with the provider's configuration.
#[derive(Debug, Default, Clone)]
pub struct CloudUrl(Arc<Mutex<Option<String>>>);

impl CloudUrl {
    /// Sets the URL of the provider block.
    pub fn configure(&self, url: Option<&str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = url.map(str::to_owned);
    }

    /// The URL of the cloud.
    fn get(&self) -> Result<String, Problems> {
        let configured = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let url = configured.or_else(|| std::env::var(CLOUD).ok());
        url.ok_or_else(|| {
            failed(
                "No cloud",
                format!("Set `cloud` in the provider block, or {CLOUD}, to the URL of the lab's cloud."),
            )
        })
    }
}

/// The attributes of an instance resource.
pub trait InstanceState: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The schema of the attributes.
    fn schema() -> Schema;
    /// The instance's identifier.
    fn id(&self) -> &str;
    /// The name to create the instance with.
    fn name(&self) -> &str;
    /// The runner version to create the instance with.
    fn runner_version(&self) -> &str;
    /// The planned state of a new instance: computed attributes are unknown.
    #[must_use]
    fn planned(self) -> Self;
    /// The state after the cloud returned the instance.
    #[must_use]
    fn created(self, instance: Instance) -> Self;
    /// The attributes whose change replaces the instance.
    fn replaced_by(&self, planned: &Self) -> Vec<&'static str>;
    /// Whether an update to this plan stops the instance, and starts it again.
    fn stopped_by(&self, planned: &Self) -> bool;
}

/// A resource with the attributes `S`.
#[derive(Debug)]
pub struct InstanceResource<S> {
    cloud: CloudUrl,
    state: PhantomData<S>,
}

impl<S> InstanceResource<S> {
    /// A resource of the cloud at this URL.
    pub fn new(cloud: CloudUrl) -> Self {
        Self { cloud, state: PhantomData }
    }
}

#[async_trait]
impl<S: InstanceState> Resource for InstanceResource<S> {
    type State = S;

    fn schema(&self) -> Schema {
        S::schema()
    }

    async fn read(&self, state: S) -> Result<Option<S>, Problems> {
        let cloud = self.cloud.get()?;
        match api::read(&cloud, state.id()).await {
            Ok(Some(instance)) => Ok(Some(state.created(instance))),
            Ok(None) => Ok(None),
            Err(error) => Err(failed("Instance cannot be read", format!("{error:#}"))),
        }
    }

    async fn plan_create(&self, proposed: S) -> Result<S, Problems> {
        Ok(proposed.planned())
    }

    async fn plan_update(&self, prior: S, proposed: S) -> Result<(S, Vec<AttributePath>), Problems> {
        let replaced = prior.replaced_by(&proposed).into_iter().map(AttributePath::new).collect();
        Ok((proposed, replaced))
    }

    async fn create(&self, planned: S) -> Result<S, Problems> {
        let cloud = self.cloud.get()?;
        match api::create(&cloud, planned.name(), planned.runner_version()).await {
            Ok(instance) => Ok(planned.created(instance)),
            Err(error) => Err(failed("Instance was not created", format!("{error:#}"))),
        }
    }

    async fn update(&self, prior: S, planned: S) -> Result<S, Problems> {
        if !prior.stopped_by(&planned) {
            return Ok(planned);
        }
        let cloud = self.cloud.get()?;
        match api::restart(&cloud, prior.id()).await {
            Ok(()) => Ok(planned),
            Err(error) => Err(failed("Instance was not updated", format!("{error:#}"))),
        }
    }

    async fn destroy(&self, prior: S) -> Result<(), Problems> {
        let cloud = self.cloud.get()?;
        match api::destroy(&cloud, prior.id()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(failed("Instance was not destroyed", format!("{error:#}"))),
        }
    }
}

/// A value that is known: from a state, or from a plan during apply.
fn text(value: &Value<String>) -> &str {
    value.as_ref_option().map_or("", String::as_str)
}

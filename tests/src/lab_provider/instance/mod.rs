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
    call,
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Resource, Schema, Value},
};
use serde::{Serialize, de::DeserializeOwned};

pub use self::{aws::AwsInstance, lab::LabInstance};
use crate::lab::cloud::{Instance, api};

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

    /// The URL of the cloud, or an error if there is none.
    fn get(&self, diags: &mut Diagnostics) -> Option<String> {
        let configured = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let url = configured.or_else(|| std::env::var(CLOUD).ok());
        if url.is_none() {
            diags.fail(
                "No cloud",
                format!("Set `cloud` in the provider block, or {CLOUD}, to the URL of the lab's cloud."),
            );
        }
        url
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
    type State<'a> = S;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(S::schema())
    }

    async fn read<'a>(&self, diags: &mut Diagnostics, state: S) -> Option<S> {
        let cloud = self.cloud.get(diags)?;
        match api::read(&cloud, state.id()).await {
            Ok(Some(instance)) => Some(state.created(instance)),
            Ok(None) => {
                call().gone();
                None
            }
            Err(error) => {
                diags.fail("Instance cannot be read", format!("{error:#}"));
                None
            }
        }
    }

    async fn plan_create<'a>(&self, _: &mut Diagnostics, proposed: S) -> Option<S> {
        Some(proposed.planned())
    }

    async fn plan_update<'a>(
        &self,
        _: &mut Diagnostics,
        prior: S,
        proposed: S,
    ) -> Option<(S, Vec<AttributePath>)> {
        let replaced = prior.replaced_by(&proposed).into_iter().map(AttributePath::new).collect();
        Some((proposed, replaced))
    }

    async fn create<'a>(&self, diags: &mut Diagnostics, planned: S) -> Option<S> {
        let cloud = self.cloud.get(diags)?;
        match api::create(&cloud, planned.name(), planned.runner_version()).await {
            Ok(instance) => Some(planned.created(instance)),
            Err(error) => {
                diags.fail("Instance was not created", format!("{error:#}"));
                None
            }
        }
    }

    async fn update<'a>(&self, diags: &mut Diagnostics, prior: S, planned: S) -> Option<S> {
        if !prior.stopped_by(&planned) {
            return Some(planned);
        }
        let cloud = self.cloud.get(diags)?;
        match api::restart(&cloud, prior.id()).await {
            Ok(()) => Some(planned),
            Err(error) => {
                diags.fail("Instance was not updated", format!("{error:#}"));
                None
            }
        }
    }

    async fn destroy<'a>(&self, diags: &mut Diagnostics, prior: S) -> Option<()> {
        let cloud = self.cloud.get(diags)?;
        match api::destroy(&cloud, prior.id()).await {
            Ok(()) => Some(()),
            Err(error) => {
                diags.fail("Instance was not destroyed", format!("{error:#}"));
                None
            }
        }
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<S> {
        diags.fail("Import is not supported", "No test imports an instance.");
        None
    }
}

/// A value that is known: from a state, or from a plan during apply.
fn text(value: &Value<String>) -> &str {
    value.as_ref_option().map_or("", String::as_str)
}

//! The cloud: the stand-in for a VM provider's API. An instance is a [`Host`].
//!
//! Tests and the demo use it directly; Terraform uses it through the resource `lab_instance` of the provider
//! `terraform-provider-lab`, which uses the HTTP API of [`api`]. Create returns when the boot has begun and the address is known
//! (the runner is ready later). Destroy returns when no process of the host is left.
//!
//! It is a resource, not `terraform_data` with provisioners, because a destroy provisioner never runs for a deposed object: with
//! `create_before_destroy` the removal of the old instance would not happen at all.

pub mod api;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    event::{EventLog, What},
    host::{Host, HostSpec, ssh::ClientKey},
    queue::Queue,
};

/// The cloud's data about an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// `i-0001` and so on; never reused.
    pub id: String,
    pub name: String,
    /// The name, with a number appended if the name was used before. Subject of the host's events.
    pub instance_name: String,
    pub runner_version: String,
    /// `host:port` of SSH.
    pub address: String,
    /// `unix:///…`
    pub wrapper_address: String,
    pub username: String,
    /// As in `known_hosts`.
    pub host_key: String,
}

impl Instance {
    /// The entry of a `runner_managers` map.
    pub fn runner_manager(&self) -> serde_json::Value {
        serde_json::json!({
            "instance_name": self.instance_name,
            "address": self.address,
            "wrapper_address": self.wrapper_address,
            "username": self.username,
            "host_key": self.host_key,
        })
    }
}

/// A handle to the cloud; clones share it.
#[derive(Debug, Clone)]
pub struct Cloud {
    shared: Arc<Shared>,
}

struct Shared {
    endpoint: String,
    folder: PathBuf,
    events: EventLog,
    queue: Queue,
    client: ClientKey,
    stock: Mutex<Stock>,
    shape: Mutex<Arc<Shape>>,
}

/// Changes the specification of an instance of this name before it boots.
type Shape = dyn Fn(&str, &mut HostSpec) + Send + Sync;

#[derive(Debug, Default)]
struct Stock {
    instances: BTreeMap<String, (Instance, Host)>,
    /// How often each name was used.
    names: BTreeMap<String, usize>,
    created: usize,
}

impl Cloud {
    /// Starts the cloud's API on a free loopback port. Hosts get directories below `folder`, and accept `client`.
    pub fn start(
        runtime: &tokio::runtime::Handle,
        folder: PathBuf,
        events: EventLog,
        queue: Queue,
        client: ClientKey,
    ) -> anyhow::Result<Cloud> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let shared = Shared {
            endpoint: format!("http://{}", listener.local_addr()?),
            folder,
            events,
            queue,
            client,
            stock: Mutex::default(),
            shape: Mutex::new(Arc::new(|_: &str, _: &mut HostSpec| {})),
        };
        let cloud = Cloud { shared: Arc::new(shared) };
        let _entered = runtime.enter();
        // Without a strong handle: the server must not keep the hosts of a dropped lab alive.
        let served = api::run(tokio::net::TcpListener::from_std(listener)?, Arc::downgrade(&cloud.shared));
        runtime.spawn(served);
        Ok(cloud)
    }

    /// The URL of the API, for the provider's `endpoint`.
    pub fn endpoint(&self) -> &str {
        &self.shared.endpoint
    }

    /// Sets a function that changes the specification of new instances by name. The version is already set.
    pub fn shape(&self, shape: impl Fn(&str, &mut HostSpec) + Send + Sync + 'static) {
        *lock(&self.shared.shape) = Arc::new(shape);
    }

    /// Boots an instance.
    pub fn create(&self, name: &str, runner_version: &str) -> anyhow::Result<(Instance, Host)> {
        self.shared.create(name, runner_version)
    }

    /// The instance with this id, if it exists.
    pub fn get(&self, id: &str) -> Option<(Instance, Host)> {
        lock(&self.shared.stock).instances.get(id).cloned()
    }

    /// The host with this instance name, if it exists.
    pub fn host(&self, instance_name: &str) -> Option<Host> {
        let found =
            self.instances().into_iter().find(|(instance, _)| instance.instance_name == instance_name);
        found.map(|(_, host)| host)
    }

    /// All existing instances, by id.
    pub fn instances(&self) -> Vec<(Instance, Host)> {
        lock(&self.shared.stock).instances.values().cloned().collect()
    }

    /// Destroys an instance; `None` when there is none with this id. Returns how many jobs were lost.
    pub fn destroy(&self, id: &str) -> Option<usize> {
        self.shared.destroy(id)
    }
}

impl Shared {
    fn create(&self, name: &str, runner_version: &str) -> anyhow::Result<(Instance, Host)> {
        let mut spec = HostSpec::version(runner_version);
        let shape = Arc::clone(&lock(&self.shape));
        shape(name, &mut spec);
        let (id, instance_name) = lock(&self.stock).name(name);
        let created = What::InstanceCreated { id: id.clone(), version: runner_version.to_owned() };
        self.events.record(&instance_name, created);
        let host = Host::boot(
            &instance_name,
            &spec,
            &self.folder.join(&id),
            &self.events,
            &self.queue,
            &self.client,
        )?;
        let instance = Instance {
            id: id.clone(),
            name: name.to_owned(),
            instance_name,
            runner_version: runner_version.to_owned(),
            address: host.address().to_owned(),
            wrapper_address: host.wrapper_address(),
            username: host.username().to_owned(),
            host_key: host.host_key().to_owned(),
        };
        lock(&self.stock).instances.insert(id, (instance.clone(), host.clone()));
        Ok((instance, host))
    }

    fn destroy(&self, id: &str) -> Option<usize> {
        let (_, host) = lock(&self.stock).instances.get(id).cloned()?;
        let lost = host.terminate();
        lock(&self.stock).instances.remove(id);
        Some(lost)
    }
}

impl Stock {
    fn name(&mut self, name: &str) -> (String, String) {
        self.created += 1;
        let used = self.names.entry(name.to_owned()).or_default();
        *used += 1;
        let instance_name = if *used == 1 { name.to_owned() } else { format!("{name}.{used}") };
        (format!("i-{:04}", self.created), instance_name)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The lab is the test environment: stand-ins for GitLab, GitLab Runner, VMs and their cloud, with one common event log.
//!
//! ```no_run
//! use std::time::Duration;
//! # fn main() -> anyhow::Result<()> {
//! let lab = grit_tests::lab::Lab::start()?;
//! let (instance, host) = lab.cloud().create("blue", "19.2.0")?; // what `lab_instance` does
//! lab.queue().submit(4, Duration::from_secs(2));
//! println!("{} {} {:?}", instance.address, host.wrapper_address(), lab.queue().tally());
//! lab.cloud().destroy(&instance.id);
//! print!("{}", lab.events());
//! # Ok(()) }
//! ```

pub mod apply;
pub mod cloud;
pub mod demo;
pub mod event;
pub mod host;
pub mod http;
pub mod queue;

pub mod checks;
pub mod runner;

use cloud::Cloud;
use event::EventLog;
use host::ssh::ClientKey;
use queue::Queue;

/// The environment of a rollout. Its servers run on separate threads, so tests need no async. Dropping the lab
/// terminates its hosts.
#[derive(Debug)]
pub struct Lab {
    events: EventLog,
    queue: Queue,
    cloud: Cloud,
    client: ClientKey,
    folder: tempfile::TempDir,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Lab {
    /// Starts the servers on free loopback ports.
    pub fn start() -> anyhow::Result<Lab> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let events = EventLog::new();
        let queue = Queue::start(runtime.handle(), events.clone())?;
        // A short path: the paths of the wrapper's sockets are limited to 107 bytes.
        let folder = tempfile::Builder::new().prefix("lab-").tempdir()?;
        let client = ClientKey::make(folder.path())?;
        let disks = folder.path().to_owned();
        let cloud = Cloud::start(runtime.handle(), disks, events.clone(), queue.clone(), client.clone())?;
        Ok(Lab { events, queue, cloud, client, folder, runtime: Some(runtime) })
    }

    /// All events so far, in order.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The job queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The cloud, which creates the hosts.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The key that every host accepts.
    pub fn client_key(&self) -> &ClientKey {
        &self.client
    }

    /// A configuration with these resources. Its provider `grit` logs in to every host.
    pub fn configuration(&self, resources: &serde_json::Value) -> String {
        let main = serde_json::json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": { "private_key_path": self.client_key().path } } },
            "resource": resources,
        });
        main.to_string()
    }

    /// The lab's directory, removed with it.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for (instance, _) in self.cloud.instances() {
            self.cloud.destroy(&instance.id);
        }
        if let Some(runtime) = self.runtime.take() {
            // In the background: waiting for a runtime in async code would panic.
            runtime.shutdown_background();
        }
    }
}

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

use std::sync::{Mutex, PoisonError};

use checks::{Exceptions, Judgment};
use cloud::Cloud;
use event::EventLog;
use host::ssh::ClientKey;
use queue::Queue;

/// The environment of a rollout. Its servers run on separate threads, so tests need no async. Dropping the lab
/// terminates its hosts, and panics if its event log has a lost job or a violation of the order that the test has not declared.
#[derive(Debug)]
pub struct Lab {
    exceptions: Mutex<Exceptions>,
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
        Ok(Lab { exceptions: Mutex::default(), events, queue, cloud, client, folder, runtime: Some(runtime) })
    }

    /// Declares that this number of jobs is lost.
    pub fn expect_lost(&self, jobs: usize) {
        self.declare(|exceptions| exceptions.lost += jobs);
    }

    /// Declares these violations, in the words of [`checks`].
    pub fn expect(&self, violations: &[&str]) {
        self.declare(|exceptions| exceptions.violations.extend(violations.iter().map(|it| (*it).to_owned())));
    }

    /// Declares a violation that depends on the time.
    pub fn allow(&self, violation: &str) {
        self.declare(|exceptions| exceptions.allowed.push(violation.to_owned()));
    }

    /// The log is not judged: for tests of the lab itself, and where the test stops runners in many ways.
    pub fn expect_anything(&self) {
        self.declare(|exceptions| exceptions.any = true);
    }

    fn declare(&self, declare: impl FnOnce(&mut Exceptions)) {
        declare(&mut self.exceptions.lock().unwrap_or_else(PoisonError::into_inner));
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
    #[expect(clippy::panic, reason = "it fails the test")]
    fn drop(&mut self) {
        let declared = self.exceptions.get_mut().unwrap_or_else(PoisonError::into_inner);
        let unexpected = Judgment::of(&self.events.all()).unexpected(declared);
        let log = unexpected.map(|unexpected| format!("{unexpected}:\n{}", self.events));
        for (instance, _) in self.cloud.instances() {
            self.cloud.destroy(&instance.id);
        }
        if let Some(runtime) = self.runtime.take() {
            // In the background: waiting for a runtime in async code would panic.
            runtime.shutdown_background();
        }
        if let Some(log) = log
            && !std::thread::panicking()
        {
            panic!("{log}");
        }
    }
}

//! A deployment in the lab: Terraform with the configuration `main.tf` beside this file, or with one of the test, and the hosts that it
//! creates.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use crate::{
    lab::{
        Lab,
        event::{Event, What},
        host::Host,
    },
    terraform::{Run, Workspace},
};

/// A limit for broken tests: longer than any step on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Versions as keys.
pub const MAIN: &str = include_str!("main.tf");

/// The part of `main.tf` before the resource of this type: for a configuration that has the rest in another form.
///
/// # Panics
///
/// If `main.tf` has no such resource.
#[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
pub fn main_before(resource_type: &str) -> &'static str {
    match MAIN.split_once(&format!("resource \"{resource_type}\"")) {
        Some((before, _)) => before,
        None => panic!("main.tf has no resource {resource_type}"),
    }
}

/// A workspace over a lab.
#[derive(Debug)]
pub struct Rollout {
    // Terraform ends before its hosts: fields are dropped in this order.
    pub workspace: Workspace,
    pub lab: Lab,
    variables: Map<String, Json>,
}

impl Rollout {
    /// A deployment without managers.
    pub fn start() -> anyhow::Result<Self> {
        let mut rollout = Self::of(MAIN)?;
        rollout.set("managers", json!({}))?;
        Ok(rollout)
    }

    /// A deployment with these managers, after its apply.
    ///
    /// # Panics
    ///
    /// If it fails.
    #[track_caller]
    #[expect(clippy::unwrap_used, reason = "a test helper: failing the test is its purpose")]
    pub fn deployed(names: &[&str]) -> Self {
        let mut rollout = Self::start().unwrap();
        rollout.deploy(names);
        rollout
    }

    /// Sets the managers, and applies.
    ///
    /// # Panics
    ///
    /// If the apply fails.
    #[track_caller]
    #[expect(clippy::unwrap_used, reason = "a test helper: failing the test is its purpose")]
    pub fn deploy(&mut self, names: &[&str]) -> Run {
        self.managers(names).unwrap();
        self.workspace.apply().unwrap().succeeded()
    }

    /// A deployment with a `main.tf` of the test's own; `providers.tf` stands beside it.
    pub fn of(main: &str) -> anyhow::Result<Self> {
        Self::with_providers(main, &["grit", "lab"])
    }

    /// The same, with these providers.
    pub fn with_providers(main: &str, providers: &[&str]) -> anyhow::Result<Self> {
        let lab = Lab::start()?;
        let workspace = workspace(main, providers)?;
        let variables = Map::from_iter([
            ("cloud".to_owned(), json!(lab.cloud().endpoint())),
            ("ssh".to_owned(), json!({ "private_key_path": lab.client_key().path })),
        ]);
        let rollout = Self { workspace, lab, variables };
        rollout.write()?;
        Ok(rollout)
    }

    /// Another directory with this `main.tf`, for the same hosts. It has no variables.
    pub fn beside(&self, main: &str) -> anyhow::Result<Workspace> {
        workspace(main, &["grit", "lab"])
    }

    /// The variables of `providers.tf`, and these.
    pub fn variables_with(&self, more: Map<String, Json>) -> Json {
        self.variables.clone().into_iter().chain(more).collect::<Map<_, _>>().into()
    }

    /// Sets a variable of `main.tf`.
    pub fn set(&mut self, name: &str, value: Json) -> anyhow::Result<()> {
        self.variables.insert(name.to_owned(), value);
        self.write()
    }

    /// Sets the managers. The part after the last dash is the version: `m1-v2` runs version 2.
    pub fn managers(&mut self, names: &[&str]) -> anyhow::Result<()> {
        let version = |name: &str| match name.rsplit_once("-v") {
            Some((_, number)) => format!("19.2.{number}"),
            None => "19.2.0".to_owned(),
        };
        let managers: Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), version(name).into())).collect();
        self.set("managers", managers.into())
    }

    fn write(&self) -> anyhow::Result<()> {
        self.workspace.write("terraform.tfvars.json", &Json::from(self.variables.clone()).to_string())
    }

    /// The host of an existing manager.
    #[track_caller]
    #[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
    pub fn host(&self, name: &str) -> Host {
        match self.lab.cloud().host(name) {
            Some(host) => host,
            None => panic!("no host {name}; there are {:?}", self.hosts()),
        }
    }

    /// The names of the existing hosts.
    pub fn hosts(&self) -> Vec<String> {
        self.lab.cloud().instances().into_iter().map(|(instance, _)| instance.instance_name).collect()
    }

    /// Queues jobs that run until they are released, and waits until all of them run.
    #[track_caller]
    pub fn hold_jobs(&self, count: usize) -> Vec<u64> {
        let jobs = self.lab.queue().submit_held(count);
        self.lab.queue().wait_until_none_waits(PATIENCE);
        jobs
    }

    /// Waits until the runner of `host` has received SIGQUIT.
    #[track_caller]
    pub fn wait_for_drain(&self, host: &str) -> Event {
        self.lab.events().wait_for(&format!("{host} drains"), PATIENCE, |event| {
            event.subject == host && is_signal(event, "SIGQUIT")
        })
    }

    /// All signals that the runners of this host handled, in order.
    pub fn signals(&self, host: &str) -> Vec<String> {
        self.lab.events().signals(Some(host))
    }

    /// Whether the runner of an instance still ran when the instance was destroyed; `None` while the instance exists.
    pub fn runner_was_alive_at_the_end_of(&self, host: &str) -> Option<bool> {
        let events = self.lab.events().all();
        events.into_iter().filter(|event| event.subject == host).find_map(|event| match event.what {
            What::InstanceTerminating { runner_alive, .. } => Some(runner_alive),
            _ => None,
        })
    }

    /// Runs `apply` and `meanwhile` at the same time. Waits for the apply in any case, and panics if `meanwhile` panicked.
    pub fn apply_while(&self, meanwhile: impl FnOnce()) -> anyhow::Result<Run> {
        std::thread::scope(|scope| {
            let apply = scope.spawn(|| self.workspace.apply());
            meanwhile();
            apply.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the apply panicked")))
        })
    }
}

fn workspace(main: &str, providers: &[&str]) -> anyhow::Result<Workspace> {
    let workspace = Workspace::new(providers)?;
    workspace.write("providers.tf", include_str!("providers.tf"))?;
    workspace.write("main.tf", main)?;
    Ok(workspace)
}

/// Whether a runner handled this signal.
pub fn is_signal(event: &Event, wanted: &str) -> bool {
    matches!(&event.what, What::RunnerSignal { signal, .. } if signal == wanted)
}

/// Asserts that `timeline` has the lines of `wanted` in this order, possibly with other lines between them.
#[track_caller]
#[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
pub fn assert_order(timeline: &[String], wanted: &[&str]) {
    let mut rest = timeline.iter();
    for line in wanted {
        if !rest.any(|seen| seen == line) {
            panic!("`{line}` does not come after the lines wanted before it:\n{}", timeline.join("\n"));
        }
    }
}

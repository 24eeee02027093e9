//! A workspace whose commands are measured.

use std::{
    collections::BTreeMap,
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::{Value as Json, json};

use super::hosts::Hosts;
use crate::{
    bench::{machine, milliseconds},
    terraform::{Backend, Workspace},
};

const SAMPLE: Duration = Duration::from_millis(10);

/// The usual soft limit of open files. Terraform starts providers with the limit that it was started with.
const OPEN_FILES: &str = "--nofile=1024:";

/// What one or more commands used. Times in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) wall: f64,
    /// CPU time of Terraform.
    pub(super) terraform: f64,
    /// CPU time of the provider's processes, up to their last sample.
    pub(super) provider: f64,
    /// The maximum of the resident memory of a provider's process, in MB.
    pub(super) memory: f64,
}

impl Used {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            wall: self.wall + other.wall,
            terraform: self.terraform + other.terraform,
            provider: self.provider + other.provider,
            memory: self.memory.max(other.memory),
        }
    }
}

/// A configuration with a remote state. With a local state, Terraform writes the whole state for each changed object.
pub(super) struct Measured {
    workspace: Workspace,
    backend: Backend,
}

impl Measured {
    /// `providers`: `grit`, or none.
    pub(super) fn new(main: &str, providers: &[&str]) -> anyhow::Result<Self> {
        let workspace = Workspace::new(providers)?;
        workspace.write("main.tf", main)?;
        workspace.write("managers.tf", include_str!("managers.tf"))?;
        if !providers.is_empty() {
            workspace.write("providers.tf", include_str!("providers.tf"))?;
        }
        let backend = Backend::start()?;
        backend.init(&workspace, providers)?;
        Ok(Self { workspace, backend })
    }

    /// Sets the variables.
    pub(super) fn set(&self, hosts: &Hosts, managers: &Json, previous: &Json) -> anyhow::Result<()> {
        let ssh = json!({
            "username": hosts.sshd.username(),
            "private_key_path": hosts.key.path,
            "host_keys": hosts.sshd.host_keys(),
        });
        let variables = json!({ "managers": managers, "previous": previous, "ssh": ssh });
        self.workspace.write("terraform.tfvars.json", &variables.to_string())
    }

    /// The size of the state in bytes.
    pub(super) fn state_size(&self) -> f64 {
        self.backend.size() as f64
    }

    /// Runs a command, which must succeed.
    pub(super) fn run(&self, arguments: &[&str]) -> anyhow::Result<Used> {
        let errors = self.workspace.path().join("errors");
        let own = std::process::id();
        let before = machine::reaped_cpu(own);
        let mut command = self.workspace.command_through(&["prlimit", OPEN_FILES], arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&errors)?);
        let start = Instant::now();
        let mut child = command.spawn().context("start Terraform")?;
        let mut providers: BTreeMap<u32, (Duration, f64)> = BTreeMap::new();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            for pid in machine::children(child.id()) {
                let (cpu, memory) = providers.entry(pid).or_default();
                *cpu = machine::cpu(pid).max(*cpu);
                *memory = machine::status(pid, "VmHWM").max(*memory);
            }
            std::thread::sleep(SAMPLE);
        };
        let wall = milliseconds(start.elapsed());
        ensure!(status.success(), "{arguments:?}: {status}: {}", fs::read_to_string(&errors)?);
        let provider = milliseconds(providers.values().map(|(cpu, _)| *cpu).sum());
        let all = milliseconds(machine::reaped_cpu(own).saturating_sub(before));
        let kib = providers.values().map(|(_, memory)| *memory).fold(0.0, f64::max);
        Ok(Used { wall, terraform: (all - provider).max(0.0), provider, memory: kib * 1024.0 / 1e6 })
    }
}

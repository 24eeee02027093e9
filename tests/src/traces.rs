//! The traces that the simulation and a run with real processes have in common (`tests/src/simulation/scripts/`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value as Json;

use crate::lab::event::{Event, What};

/// Events of one list have one order. Terraform and the logs of the wrappers reach the lab through pipes of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// What happened to the instances and to the runners.
    pub hosts: Vec<String>,
    /// The transitions of each wrapper, by its host.
    pub states: BTreeMap<String, Vec<String>>,
    /// How the jobs have ended. A loss has no time: GitLab is not informed of it.
    pub jobs: BTreeSet<String>,
    /// The operations of Terraform.
    pub terraform: Vec<String>,
}

impl Traces {
    /// Of the hosts of a lab.
    #[must_use]
    pub fn of(events: &[Event]) -> Self {
        let mut traces = Self::default();
        for event in events {
            traces.add(event);
        }
        traces
    }

    /// Something has happened to a host. At the death of a wrapper, the kernel sends SIGQUIT once for each thread that was a
    /// parent, and the next wrapper sends it again: repeats are one line.
    pub fn add_host(&mut self, host: &str, what: &str) {
        let line = format!("{host}: {what}");
        if self.hosts.last() != Some(&line) {
            self.hosts.push(line);
        }
    }

    /// The wrapper of a host has changed its state, or another wrapper waits for the runner.
    pub fn add_state(&mut self, host: &str, what: String) {
        self.states.entry(host.to_owned()).or_default().push(what);
    }

    /// A job of the runner of this host has ended.
    pub fn add_job(&mut self, host: &str, job: u64, what: &str) {
        self.jobs.insert(format!("{host}: job {job} {what}"));
    }

    /// How often this has happened to the host, its wrapper, or its jobs.
    #[must_use]
    pub fn count(&self, host: &str, what: &str) -> usize {
        let line = format!("{host}: {what}");
        let states = self.states.get(host).into_iter().flatten().filter(|state| *state == what).count();
        states + self.hosts.iter().chain(&self.jobs).filter(|of_host| **of_host == line).count()
    }

    fn add(&mut self, event: &Event) {
        let what = match &event.what {
            What::InstanceCreated { .. } => "instance created",
            What::InstanceTerminating { runner_alive: false, .. } => "instance destroyed",
            What::InstanceTerminating { .. } => "instance destroyed with its runner",
            What::RunnerStarted { .. } => "runner started",
            What::RunnerPolling { .. } => "runner takes jobs",
            What::RunnerSignal { signal, .. } => signal,
            What::RunnerExiting { code, .. } => &format!("runner exits with code {code}"),
            What::JobFinished { job } => return self.add_job(&event.subject, *job, "has ended"),
            What::JobLost { job, .. } => return self.add_job(&event.subject, *job, "is lost"),
            What::Log { line } => return self.add_log(&event.subject, line),
            _ => return,
        };
        self.add_host(&event.subject, what);
    }

    fn add_log(&mut self, host: &str, line: &str) {
        let Ok(fields) = serde_json::from_str::<Json>(line) else { return };
        let what = match (fields["message"].as_str(), fields["from"].as_str(), fields["to"].as_str()) {
            (Some("runner state changed"), Some(from), Some(to)) => format!("{from} -> {to}"),
            (Some("the runner of a killed wrapper is running: waiting for its exit"), ..) => {
                "the next wrapper waits for the runner".to_owned()
            }
            _ => return,
        };
        self.add_state(host, what);
    }
}

impl fmt::Display for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.jobs.iter().cloned().collect();
        let states = self.states.iter().map(|(host, states)| (format!("states of {host}"), states));
        let lists = [("hosts".to_owned(), &self.hosts)].into_iter().chain(states);
        let last = [("jobs".to_owned(), &jobs), ("terraform".to_owned(), &self.terraform)];
        for (title, lines) in lists.chain(last) {
            writeln!(f, "[{title}]\n{}\n", lines.join("\n"))?;
        }
        Ok(())
    }
}

//! The demo: a complete rollout on one machine. It needs only Rust and terraform or tofu.
//!
//! Two hosts for each deployment version, a job queue under steady load, and the root module beside this file. It deploys
//! version 1, rolls to version 2 in one apply, destroys, and prints the events. Then it checks the event log.
//! A lost job, a wrong order or an unexpected plan is an error.

mod timeline;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;

use self::timeline::Timeline;
use super::{
    Lab, apply, checks,
    event::{EventLog, What},
    host::{HostSpec, ssh},
    queue::{Queue, Tally},
};
use crate::{
    lab_provider::instance,
    terraform::{self, Event, Run, Workspace},
};

/// Limit of each wait; a normal run needs a fraction.
const LIMIT: Duration = Duration::from_secs(120);
const OLD: [&str; 2] = ["blue-v1", "green-v1"];
const NEW: [&str; 2] = ["blue-v2", "green-v2"];
/// Concurrent jobs on one host.
const CONCURRENT: usize = 4;
/// Durations of the jobs of the load, used in turn.
const JOBS: [Duration; 5] = [
    Duration::from_millis(900),
    Duration::from_millis(2500),
    Duration::from_millis(1400),
    Duration::from_millis(3200),
    Duration::from_millis(500),
];

/// The options.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Abort the jobs of a draining runner with SIGTERM, to verify that the demo detects it.
    #[arg(long)]
    pub sabotage: bool,
    /// Use the embedded SSH server even if sshd is installed.
    #[arg(long)]
    pub embedded_ssh: bool,
}

/// Runs the demo and prints its events. Returns the job counts if all checks passed.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let lab = Lab::start()?;
    // The demo reports what it finds.
    lab.expect_anything();
    let ssh = if options.embedded_ssh { ssh::Choice::Embedded } else { ssh::Choice::Best };
    lab.cloud().shape(move |_, spec| *spec = HostSpec { ssh: ssh.clone(), ..slow_runner(spec.clone()) });
    let timeline = Timeline::start(lab.events());
    let outcome = scenario(&lab, options);
    timeline.finish();
    if outcome.is_err() {
        print(&format!("\nThe whole log:\n{}", lab.events()));
    }
    outcome
}

fn scenario(lab: &Lab, options: &Options) -> anyhow::Result<Tally> {
    let events = lab.events();
    let mut root = Root::create(lab)?;
    let program = terraform::terraform()?;
    events.note("demo", format!("{} ({})", root.version()?, program.display()));
    events.note("demo", "each host: an SSH server, grit-wrapper, and a stand-in for gitlab-runner");

    section(events, "deploy version 1");
    root.set_version("v1");
    expect(&root.run("apply")?, &Changes { add: 5, change: 0, remove: 0 })?;
    ssh_in_use(lab)?;
    ensure!(!root.has_changes()?, "a second plan of the same version is not empty");
    events.note("terraform", "plan: no changes");

    section(events, "submit jobs");
    let load = Load::start(lab.queue());
    wait(events, "both hosts are full of jobs", || lab.queue().tally().running >= CONCURRENT * OLD.len())?;
    events.note("queue", format!("{} jobs running on version 1", lab.queue().tally().running));

    section(events, "roll to version 2 in one apply");
    let from = events.all().len();
    let saboteur = options.sabotage.then(|| sabotage(lab));
    root.set_version("v2");
    let rolled = root.run("apply")?;
    if let Some(saboteur) = saboteur {
        // It panics only if the expected drain never began; the checks report that.
        let _ = saboteur.join();
    }
    load.stop();
    expect(&rolled, &Changes { add: 4, change: 1, remove: 4 })?;
    check(&checks::violations(&events.all(), from, &OLD, &NEW))?;
    ensure!(!root.has_changes()?, "a plan after the roll is not empty");
    events.note("terraform", "plan: no changes");
    let tally =
        lab.queue().wait_all_ended(LIMIT).map_err(|open| anyhow::anyhow!("jobs never ended: {open:?}"))?;
    events.note("queue", format!("{} jobs finished so far, {} lost", tally.finished, tally.lost));

    section(events, "destroy, with jobs running");
    let from = events.all().len();
    lab.queue().submit(6, Duration::from_millis(1500));
    // On a busy machine the first one may end before the last one runs.
    wait(events, "the jobs run", || {
        let tally = lab.queue().tally();
        tally.running == tally.open()
    })?;
    expect(&root.run("destroy")?, &Changes { add: 0, change: 0, remove: 5 })?;
    check(&checks::violations(&events.all(), from, &NEW, &[]))?;
    ensure!(lab.cloud().instances().is_empty(), "instances are left");

    let tally = lab.queue().tally();
    ensure!(tally.lost == 0, "{} jobs were lost", tally.lost);
    ensure!(tally.open() == 0, "jobs are left: {tally:?}");
    Ok(tally)
}

/// A realistic runner: it starts slowly, and shuts down slowly after its last job.
fn slow_runner(spec: HostSpec) -> HostSpec {
    // GitLab Runner's default. With more, an idle runner sends another request in each turn, and a drain waits for the last one.
    let request_concurrency = 1;
    let boot_takes = Duration::from_millis(400);
    let spec = HostSpec { concurrent: CONCURRENT, request_concurrency, boot_takes, ..spec.under_load() };
    spec.runner(&["--start-delay", "300ms", "--handlers-after", "100ms", "--executor-shutdown", "300ms"])
}

/// The root module beside this file, in a workspace of its own.
struct Root {
    workspace: Workspace,
    events: EventLog,
}

impl Root {
    fn create(lab: &Lab) -> anyhow::Result<Root> {
        let workspace = Workspace::new(&["grit", "lab"])?
            .env(instance::CLOUD, lab.cloud().endpoint())
            .env("TF_VAR_private_key_path", &lab.client_key().path);
        workspace.write("main.tf", include_str!("main.tf"))?;
        workspace.write("variables.tf", include_str!("variables.tf"))?;
        workspace.write("versions.tf", include_str!("versions.tf"))?;
        Ok(Root { workspace, events: lab.events().clone() })
    }

    fn version(&self) -> anyhow::Result<String> {
        let run = self.workspace.run(["version"])?;
        run.stdout.lines().next().map(str::to_owned).context("terraform did not tell its version")
    }

    fn set_version(&mut self, version: &str) {
        self.workspace.set_env("TF_VAR_active_versions", format!("[\"{version}\"]"));
    }

    fn run(&self, verb: &str) -> anyhow::Result<Run> {
        apply::run(&self.events, &self.workspace, &[verb, "-json", "-auto-approve"])
    }

    fn has_changes(&self) -> anyhow::Result<bool> {
        let run = self.workspace.run(["plan", "-detailed-exitcode"])?;
        match run.code {
            Some(0) => Ok(false),
            Some(2) => Ok(true),
            _ => bail!("terraform plan failed:\n{}", run.stderr),
        }
    }
}

/// The number of objects that a plan changes.
#[derive(Debug, PartialEq, Eq)]
struct Changes {
    add: u64,
    change: u64,
    remove: u64,
}

fn expect(run: &Run, wanted: &Changes) -> anyhow::Result<()> {
    if run.code != Some(0) {
        let errors: Vec<_> =
            run.errors().iter().map(|(summary, detail)| format!("{summary}: {detail}")).collect();
        bail!("terraform failed:\n{}\n{}", errors.join("\n"), run.stderr);
    }
    let planned = run.events.iter().find_map(|event| match event {
        Event::ChangeSummary { operation, add, change, remove } if operation == "plan" => {
            Some(Changes { add: *add, change: *change, remove: *remove })
        }
        _ => None,
    });
    ensure!(planned.as_ref() == Some(wanted), "unexpected plan: {planned:?} instead of {wanted:?}");
    Ok(())
}

fn check(violations: &[String]) -> anyhow::Result<()> {
    ensure!(violations.is_empty(), "a check failed:\n  {}", violations.join("\n  "));
    Ok(())
}

/// Records the SSH server of the hosts.
fn ssh_in_use(lab: &Lab) -> anyhow::Result<()> {
    let booted = lab.events().find(|event| matches!(event.what, What::InstanceBooted { .. }));
    let Some(What::InstanceBooted { ssh }) = booted.map(|event| event.what) else {
        bail!("no instance booted")
    };
    lab.events().note("demo", format!("SSH server of the hosts: {ssh}"));
    Ok(())
}

fn wait(events: &EventLog, what: &str, met: impl Fn() -> bool) -> anyhow::Result<()> {
    let start = std::time::Instant::now();
    let mut seen = 0;
    while !met() {
        ensure!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        if let Some(event) = events.wait_from(seen, Duration::from_millis(50), |_| true) {
            seen = event.seq + 1;
        }
    }
    Ok(())
}

/// Sends SIGTERM to a draining runner, as a wrong script would.
fn sabotage(lab: &Lab) -> JoinHandle<()> {
    let (events, cloud, from) = (lab.events().clone(), lab.cloud().clone(), lab.events().all().len());
    std::thread::spawn(move || {
        let drain = events.wait_from(from, LIMIT, |event| matches!(event.what, What::RunnerSignal { .. }));
        let host = drain.and_then(|event| cloud.host(&event.subject));
        if let Some(host) = host {
            // The runner may have exited already; then no job is aborted and the demo succeeds.
            let _ = host.signal_runner(Signal::TERM);
        }
    })
}

fn section(events: &EventLog, title: &str) {
    events.note("demo", format!("== {title} =="));
}

#[expect(clippy::print_stdout, reason = "the demo is there to be read")]
fn print(text: &str) {
    println!("{text}");
}

/// Keeps a few jobs waiting in the queue, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(queue: &Queue) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, queue) = (Arc::clone(&stop), queue.clone());
        let thread = std::thread::spawn(move || {
            let mut durations = JOBS.iter().cycle();
            while !stopped.load(Ordering::Acquire) {
                if queue.tally().queued < 2
                    && let Some(lasts) = durations.next()
                {
                    queue.submit(1, *lasts);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Load { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // A panic has no effect: only its further jobs are missing.
        let _ = self.thread.join();
    }
}

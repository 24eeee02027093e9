//! The main job as its users see it: one apply that replaces every runner manager, while each runs a job.
//!
//! The wall time of the apply is divided into phases by the event log. The ideal is what no tool can avoid: the instances boot and their
//! runners poll, the last job of the old runners ends and their runners exit, the instances are removed. The overhead is the rest:
//! Terraform, the health check after the last runner polls, the drains, and the destroys that wait for each other.
//!
//! Each old runner has one job, which ends when all old runners are draining. Terraform's own part is measured with the same graph of `terraform_data` and the same instances.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Row, Settings, median, milliseconds};
use crate::{
    lab::event::{Event, What},
    poll,
    rollout::{PATIENCE, Rollout, is_signal, main_before},
};

const BENCH: &str = "rollout";

/// Number of managers, number of samples, and the budget in milliseconds of the overhead without Terraform's own part. More managers have none,
/// because all hosts share this machine's processors.
const SIZES: [(usize, usize, Option<f64>); 4] =
    [(1, 3, Some(500.0)), (4, 3, None), (16, 3, None), (64, 3, None)];

/// The drain resources and the health check of `main.tf` without this provider.
const GRAPH: &str = r#"
resource "terraform_data" "drain" {
  for_each = var.managers

  triggers_replace = lab_instance.manager[each.key].id

  input = {
    instance_name   = lab_instance.manager[each.key].instance_name
    address         = lab_instance.manager[each.key].address
    wrapper_address = lab_instance.manager[each.key].wrapper_address
    username        = lab_instance.manager[each.key].username
    host_key        = lab_instance.manager[each.key].host_key
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "terraform_data" "health" {
  input = {
    runner_managers = { for key, drain in terraform_data.drain : key => drain.output }
    drains          = { for key, drain in terraform_data.drain : key => drain.id }
  }

  lifecycle {
    create_before_destroy = true
  }
}
"#;

/// A job of a runner that `terraform destroy` drains.
const JOB: Duration = Duration::from_secs(4);

/// Age of the old runners when the apply begins. The wrapper sends no SIGQUIT to a runner younger than 3 s (`--start-grace`), which no
/// rollout of runners that have worked for days waits for.
const AGE: Duration = Duration::from_secs(3);

/// What one apply took, in milliseconds.
#[derive(Debug, Default)]
struct Phases {
    /// From the start of Terraform to the request of the first instance.
    plan: f64,
    /// Until the last new runner polls. Ideal.
    instances: f64,
    /// Until the first old runner receives SIGQUIT.
    proof: f64,
    /// Until the last one does.
    signals: f64,
    /// Until the last old runner exits. Ideal.
    jobs: f64,
    /// Until the request to remove the first instance.
    evidence: f64,
    /// Until the last instance is removed. Ideal, as far as an instance needs it.
    removal: f64,
    /// Until the end of Terraform.
    end: f64,
}

impl Phases {
    fn overhead(&self) -> f64 {
        self.plan + self.proof + self.signals + self.evidence + self.end
    }

    fn wall(&self) -> f64 {
        self.overhead() + self.instances + self.jobs + self.removal
    }
}

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let sizes = if settings.quick { &SIZES[..1] } else { &SIZES[..] };
    let mut rows = Vec::new();
    for (managers, samples, budget) in sizes {
        let samples = rollouts(*managers, settings.samples(*samples))
            .with_context(|| format!("a rollout of {managers} managers"))?;
        let core = terraform_alone(*managers, samples.len())?;
        rows.extend(rows_of(*managers, &samples, &core, *budget));
    }
    if let (false, Some((managers, ..))) = (settings.quick, sizes.last()) {
        rows.extend(destroys(*managers)?);
    }
    Ok(rows)
}

fn rows_of(managers: usize, samples: &[Phases], core: &[f64], budget: Option<f64>) -> Vec<Row> {
    let of = |value: fn(&Phases) -> f64| median(&samples.iter().map(value).collect::<Vec<_>>());
    let wall = of(Phases::wall);
    let row = |name: &str, value| Row::new(BENCH, format!("{managers}: {name}"), value, "ms");
    let (overhead, core) = (of(Phases::overhead), median(core));
    let ours = row("overhead over the ideal and Terraform", overhead - core);
    vec![
        match budget {
            Some(most) => ours.budget(most),
            None => ours,
        },
        row("overhead over the ideal", overhead).against(format!("the apply, {wall:.0} ms"), wall),
        row("of it: Terraform alone, the same graph of terraform_data", core),
        row("of it: start of Terraform to first instance", of(|it| it.plan)),
        row("of it: last runner polls to first SIGQUIT", of(|it| it.proof)),
        row("of it: first SIGQUIT to last", of(|it| it.signals)),
        row("of it: last exit to first removal", of(|it| it.evidence)),
        row("of it: last removal to end of Terraform", of(|it| it.end)),
        row("ideal: boot until all runners poll", of(|it| it.instances)),
        row("ideal: last SIGQUIT to last exit", of(|it| it.jobs)),
        row("ideal: removal of the instances", of(|it| it.removal)),
    ]
}

/// A deployment whose runners have no free worker while they have one job: they send no job requests, so that SIGQUIT waits for no gap between them
/// (the benchmark `drain-start` measures that wait). The latency of GitLab is not an overhead of the rollout either.
fn busy() -> anyhow::Result<Rollout> {
    let rollout = Rollout::start()?;
    rollout.lab.cloud().shape(|_, spec| spec.concurrent = 1);
    rollout.lab.queue().set_latency(Duration::ZERO..=Duration::ZERO);
    Ok(rollout)
}

/// Rolls the same managers to one version after the other.
fn rollouts(managers: usize, samples: usize) -> anyhow::Result<Vec<Phases>> {
    let mut rollout = busy()?;
    rollout.set("health", json!({ "start_drains": true }))?;
    set(&mut rollout, managers, 1)?;
    applied(&rollout)?;
    let mut phases = Vec::new();
    for sample in 0..samples {
        std::thread::sleep(AGE);
        let jobs = rollout.lab.queue().submit_held(managers);
        rollout.lab.queue().wait_until_none_waits(PATIENCE);
        set(&mut rollout, managers, sample + 2)?;
        let start = rollout.lab.events().note("bench", "apply");
        std::thread::scope(|scope| {
            let apply = scope.spawn(|| applied(&rollout));
            poll::until("all runners drain", PATIENCE * 2, || match signals(&rollout, start.seq) {
                all if all == managers || apply.is_finished() => Ok(()),
                some => Err(some),
            });
            rollout.lab.queue().release(&jobs);
            apply.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the apply panicked")))
        })?;
        let end = rollout.lab.events().note("bench", "applied");
        let events = rollout.lab.events().all();
        phases.push(phases_of(&events[start.seq..=end.seq], managers)?);
    }
    let tally = rollout.lab.queue().tally();
    ensure!(tally.lost == 0 && tally.finished == managers * samples, "jobs were lost: {tally:?}");
    Ok(phases)
}

/// What Terraform needs for the same changes without this provider, in milliseconds: until the first instance, from the last new instance to the first
/// removal, and after the last removal.
fn terraform_alone(managers: usize, samples: usize) -> anyhow::Result<Vec<f64>> {
    let mut rollout = Rollout::of(&format!("{}{GRAPH}", main_before("grit_runner_drain")))?;
    // Without this provider, no instance is drained.
    rollout.lab.expect_anything();
    set(&mut rollout, managers, 1)?;
    applied(&rollout)?;
    let mut times = Vec::new();
    for sample in 0..samples {
        set(&mut rollout, managers, sample + 2)?;
        let start = rollout.lab.events().note("bench", "apply");
        applied(&rollout)?;
        let end = rollout.lab.events().note("bench", "applied");
        let events = &rollout.lab.events().all()[start.seq..=end.seq];
        let (created, _) = times_of(events, managers, "instance created", is_created)?;
        let (_, booted) = times_of(events, managers, "instance booted", |what| {
            matches!(what, What::InstanceBooted { .. })
        })?;
        let (removal, _) = times_of(events, managers, "removal begins", is_removal)?;
        let (_, removed) = times_of(events, managers, "instance removed", is_removed)?;
        let parts = [(start.at, created), (booted, removal), (removed, end.at)];
        times.push(parts.iter().map(|(from, to)| milliseconds(to.saturating_sub(*from))).sum());
    }
    Ok(times)
}

/// `terraform destroy` while each runner has a job, with the default of `-parallelism` and with one operation for each manager.
fn destroys(managers: usize) -> anyhow::Result<Vec<Row>> {
    let mut rollout = busy()?;
    let mut times = Vec::new();
    for (version, parallelism) in [(1, 10), (2, managers)] {
        set(&mut rollout, managers, version)?;
        applied(&rollout)?;
        std::thread::sleep(AGE);
        rollout.lab.queue().submit(managers, JOB);
        rollout.lab.queue().wait_until_none_waits(PATIENCE);
        let start = Instant::now();
        let arguments = ["destroy", "-json", "-auto-approve", &format!("-parallelism={parallelism}")];
        let run = rollout.workspace.run(arguments)?;
        ensure!(run.code == Some(0), "terraform destroy failed: {}", run.stdout);
        times.push(milliseconds(start.elapsed()));
    }
    ensure!(rollout.lab.queue().tally().lost == 0, "jobs were lost");
    let row = |name: String, value| Row::new(BENCH, format!("{managers}: {name}"), value, "ms");
    let all = row(format!("terraform destroy -parallelism={managers}"), times[1]);
    let ten = row("terraform destroy".to_owned(), times[0]);
    Ok(vec![ten.against(format!("with -parallelism={managers}"), times[1]), all])
}

fn signals(rollout: &Rollout, from: usize) -> usize {
    let events = rollout.lab.events().all();
    events[from..].iter().filter(|event| is_signal(event, "SIGQUIT")).count()
}

fn set(rollout: &mut Rollout, managers: usize, version: usize) -> anyhow::Result<()> {
    let names: Vec<_> = (1..=managers).map(|manager| format!("m{manager:02}-v{version}")).collect();
    rollout.managers(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn applied(rollout: &Rollout) -> anyhow::Result<()> {
    let run = rollout.workspace.apply()?;
    ensure!(run.code == Some(0), "terraform apply failed: {}", run.stdout);
    Ok(())
}

/// When the first and the last manager had this event.
fn times_of(
    events: &[Event],
    managers: usize,
    what: &str,
    matches: fn(&What) -> bool,
) -> anyhow::Result<(Duration, Duration)> {
    let found: Vec<_> = events.iter().filter(|event| matches(&event.what)).map(|event| event.at).collect();
    ensure!(found.len() == managers, "{} events of {managers} managers: {what}", found.len());
    Ok((*found.first().context("no event")?, *found.last().context("no event")?))
}

fn is_created(what: &What) -> bool {
    matches!(what, What::InstanceCreated { .. })
}

fn is_removal(what: &What) -> bool {
    matches!(what, What::InstanceTerminating { .. })
}

fn is_removed(what: &What) -> bool {
    matches!(what, What::InstanceRemoved { .. })
}

/// The phases of one apply from its events, which begin and end with it.
fn phases_of(events: &[Event], managers: usize) -> anyhow::Result<Phases> {
    let times = |what, matches| times_of(events, managers, what, matches);
    let (created, _) = times("instance created", is_created)?;
    let (_, polling) = times("runner polls", |what| matches!(what, What::RunnerPolling { .. }))?;
    let (_, exited) = times("runner exits", |what| matches!(what, What::RunnerExiting { .. }))?;
    let (removal, _) = times("removal begins", is_removal)?;
    let (_, removed) = times("instance removed", is_removed)?;
    let signals: Vec<_> =
        events.iter().filter(|event| is_signal(event, "SIGQUIT")).map(|event| event.at).collect();
    let (first, last) = signals.first().zip(signals.last()).context("no SIGQUIT")?;
    let (start, end) = events.first().zip(events.last()).context("no event")?;
    let between = |from: Duration, to: Duration| milliseconds(to.saturating_sub(from));
    Ok(Phases {
        plan: between(start.at, created),
        instances: between(created, polling),
        proof: between(polling, *first),
        signals: between(*first, *last),
        jobs: between(*last, exited),
        evidence: between(exited, removal),
        removal: between(removal.max(exited), removed),
        end: between(removed, end.at),
    })
}

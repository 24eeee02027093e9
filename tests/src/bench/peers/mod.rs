//! grit-wrapper beside other supervisors of one process: runit's `runsv`, `s6-supervise`, supervisord and systemd.
//!
//! All of them supervise the same script. The delay before a restart protects a host from a crash loop, and is not measured: grit-wrapper's
//! (1 s, which doubles) is subtracted, and systemd's default of 100 ms is configured to be 0. The process is older than a second when it is
//! killed, so that the other supervisors do not delay its restart.
//!
//! The peers are Debian's packages. A peer that is not on this machine has a row that says so. `cargo xtask bench` unpacks them.

mod query;
mod supervisor;

use std::time::Duration;

use anyhow::Context;

use super::{Row, Settings, machine, median, quantile, timed};
use query::Query;
use supervisor::{Kind, Script, Supervisor};

const BENCH: &str = "peers";

/// The age at which the process is killed. Younger processes are restarted with a delay by `runsv` and `s6-supervise`.
const AGE: Duration = Duration::from_millis(1200);

/// How a value is compared with those of the peers.
#[derive(Clone, Copy, PartialEq)]
enum Goal {
    /// grit-wrapper has the smallest value. Few samples decide nothing.
    Smallest { quick: bool },
    /// grit-wrapper has the smallest value of the supervisors with an API. `runsv` and `s6-supervise` have none: they are C programs of a few
    /// hundred lines without a server and a state file, and they do not search for processes that the last one left running.
    SmallestWithApi { quick: bool },
    /// Shown, not judged.
    Shown,
}

/// One supervisor and its value.
type Value = (Kind, f64);

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let folder = folder()?;
    let script = Script::new(folder.path())?;
    let mut rows = Vec::new();
    let mut present = Vec::new();
    for kind in Kind::ALL {
        match Supervisor::start(kind, &script) {
            Ok(mut supervisor) => {
                supervisor.started().with_context(|| format!("{} does not start the script", kind.name()))?;
                present.push(supervisor);
            }
            Err(error) if kind == Kind::Grit => return Err(error),
            Err(error) => {
                let name = format!("{}: not measured, {error:#}", kind.name());
                rows.push(Row::new(BENCH, name, f64::NAN, ""));
            }
        }
    }
    rows.extend(idle(*settings, &present));
    rows.extend(restarts(*settings, &mut present, &script)?);
    rows.extend(queries(*settings, &present)?);
    let kinds: Vec<Kind> = present.iter().map(|supervisor| supervisor.kind).collect();
    drop(present);
    rows.extend(starts(*settings, &kinds, &script)?);
    Ok(rows)
}

/// A directory in memory, as `/run` is, where the supervisors have their sockets and state files on a host.
fn folder() -> anyhow::Result<tempfile::TempDir> {
    let memory = tempfile::Builder::new().prefix("peers-").tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).context("make a folder")
}

/// The number of samples. One shows that a measurement works.
fn samples(settings: Settings, full: usize) -> usize {
    if settings.quick { 1 } else { full }
}

/// Rows of one measurement, with the budget of grit-wrapper's row.
fn compare(what: &str, unit: &'static str, values: &[Value], goal: Goal) -> Vec<Row> {
    let is_rival = |kind: Kind| match goal {
        Goal::Smallest { quick } => !quick && kind != Kind::Grit,
        Goal::SmallestWithApi { quick } => !quick && kind.has_api() && kind != Kind::Grit,
        Goal::Shown => false,
    };
    let best = values.iter().filter(|(kind, _)| is_rival(*kind)).min_by(|a, b| a.1.total_cmp(&b.1));
    let row = |(kind, value): &Value| {
        let row = Row::new(BENCH, format!("{what}: {}", kind.name()), *value, unit);
        match best {
            Some((rival, least)) if *kind == Kind::Grit => {
                let row = row.budget(*least);
                if *least > 0.0 { row.against(rival.name(), *least) } else { row }
            }
            _ => row,
        }
    };
    values.iter().map(row).collect()
}

/// A value that upstream published or that was measured elsewhere.
fn published(what: &str, value: f64, unit: &'static str) -> Row {
    Row::new(BENCH, format!("{what}: upstream's wrapper"), value, unit).named("published, not measured here")
}

/// Memory, wake-ups and CPU while the process runs and no client calls.
fn idle(settings: Settings, present: &[Supervisor]) -> Vec<Row> {
    let (settle, window) = if settings.quick { (100, 300) } else { (3_000, 10_000) };
    std::thread::sleep(Duration::from_millis(settle));
    let read =
        || present.iter().map(|it| (machine::wakeups(it.pid), machine::cpu(it.pid))).collect::<Vec<_>>();
    let before = read();
    std::thread::sleep(Duration::from_millis(window));
    let after = read();
    let seconds = window as f64 / 1000.0;
    let spent = |of: &dyn Fn(usize) -> f64| -> Vec<Value> {
        present.iter().enumerate().map(|(at, it)| (it.kind, of(at))).collect()
    };
    let with_api = Goal::SmallestWithApi { quick: false };
    let memory = spent(&|at| machine::resident(present[at].pid) / 1000.0);
    let wakes = spent(&|at| (after[at].0 - before[at].0) / seconds);
    let cpu = spent(&|at| (after[at].1.saturating_sub(before[at].1)).as_secs_f64() / seconds * 3600.0);
    let mut rows = compare("memory (RSS)", "MB", &memory, with_api);
    rows.push(published("memory (RSS), smallest", 33.0, "MB"));
    rows.push(published("memory (RSS), largest", 50.0, "MB"));
    rows.extend(compare("wake-ups a second", "/s", &wakes, Goal::Smallest { quick: settings.quick }));
    rows.extend(compare("CPU an hour", "s", &cpu, Goal::Smallest { quick: settings.quick }));
    rows
}

/// From the SIGKILL until the next process has run its first command, less the delay of the supervisor.
fn restarts(settings: Settings, present: &mut [Supervisor], script: &Script) -> anyhow::Result<Vec<Row>> {
    let mut took = vec![Vec::new(); present.len()];
    let mut direct = Vec::new();
    // The delays of five failures are 31 s together.
    for failures in (0_u32..).take(samples(settings, 5)) {
        std::thread::sleep(AGE);
        for (supervisor, took) in present.iter_mut().zip(&mut took) {
            let name = supervisor.kind.name();
            let (_, restarted) = timed(|| {
                supervisor.kill_child()?;
                supervisor.started()
            })
            .with_context(|| format!("{name} does not restart the script"))?;
            took.push(restarted - supervisor.kind.restart_delay(failures).as_secs_f64() * 1000.0);
        }
        direct.push(direct_start(script)?);
    }
    let values: Vec<Value> = present.iter().zip(&took).map(|(it, took)| (it.kind, median(took))).collect();
    let mut rows = compare(
        "death of the process to its restart",
        "ms",
        &values,
        Goal::SmallestWithApi { quick: settings.quick },
    );
    rows.push(Row::new(BENCH, "the same script, started directly", median(&direct), "ms"));
    Ok(rows)
}

/// From exec of the supervisor until the process has run its first command, less the same without a supervisor.
fn starts(settings: Settings, kinds: &[Kind], script: &Script) -> anyhow::Result<Vec<Row>> {
    let mut took = vec![Vec::new(); kinds.len()];
    let mut direct = Vec::new();
    for _ in 0..samples(settings, 4) {
        let alone = direct_start(script)?;
        for (kind, took) in kinds.iter().zip(&mut took) {
            if *kind == Kind::Systemd {
                // Its start is the boot of a machine.
                continue;
            }
            let (_supervisor, start) = timed(|| {
                let mut supervisor = Supervisor::start(*kind, script)?;
                supervisor.started()?;
                Ok(supervisor)
            })?;
            took.push(start);
        }
        direct.push(alone);
    }
    let direct = median(&direct);
    let values: Vec<Value> = kinds
        .iter()
        .zip(&took)
        .filter(|(_, took)| !took.is_empty())
        .map(|(kind, took)| (*kind, (median(took) - direct).max(0.0)))
        .collect();
    Ok(compare("start-up added to exec", "ms", &values, Goal::SmallestWithApi { quick: settings.quick }))
}

/// From exec of the script until its first command has run.
fn direct_start(script: &Script) -> anyhow::Result<f64> {
    let (mut child, took) = timed(|| {
        let child = script.command().spawn().context("start the script")?;
        script.started()?;
        Ok(child)
    })?;
    child.kill().context("end the script")?;
    child.wait().context("end the script")?;
    Ok(took)
}

/// The state of the process, read repeatedly over the supervisor's API, or with its command where it has none.
fn queries(settings: Settings, present: &[Supervisor]) -> anyhow::Result<Vec<Row>> {
    let (mut p50, mut p99, mut rate) = (Vec::new(), Vec::new(), Vec::new());
    let (mut commands, mut ways) = (Vec::new(), Vec::new());
    for supervisor in present {
        let measure = |mut query: Query, calls| -> anyhow::Result<(Vec<f64>, String)> {
            query.call().with_context(|| format!("{}: {}", supervisor.kind.name(), query.way()))?;
            let samples: anyhow::Result<Vec<f64>> =
                (0..samples(settings, calls)).map(|_| Ok(timed(|| query.call())?.1)).collect();
            Ok((samples?, query.way()))
        };
        // supervisord's command needs a quarter of a second of CPU.
        let (by_command, _) = measure(supervisor.command_query()?, 5)?;
        commands.push((supervisor.kind, median(&by_command)));
        let (samples, way) = match supervisor.api_query()? {
            Some(query) => measure(query, 3000)?,
            None => measure(supervisor.command_query()?, 200)?,
        };
        p50.push((supervisor.kind, median(&samples)));
        p99.push((supervisor.kind, quantile(&samples, 0.99)));
        let total: f64 = samples.iter().sum();
        rate.push((supervisor.kind, samples.len() as f64 / total * 1000.0));
        ways.push(way);
    }
    let mut rows = compare("status, p50", "ms", &p50, Goal::Smallest { quick: settings.quick });
    rows.push(published("status, p50", 0.46, "ms"));
    rows.extend(compare("status, p99", "ms", &p99, Goal::Smallest { quick: settings.quick }));
    rows.extend(compare("status, calls a second", "/s", &rate, Goal::Shown));
    for (row, way) in rows.iter_mut().rev().zip(ways.iter().rev()) {
        row.against = Some(way.clone());
    }
    rows.extend(compare("status with the command, p50", "ms", &commands, Goal::Shown));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grit_wrapper_is_judged_by_best_rival() {
        let values = [(Kind::Grit, 6.0), (Kind::S6, 2.0), (Kind::Supervisord, 20.0)];
        let judged =
            |goal| compare("x", "MB", &values, goal).into_iter().map(|row| row.budget).collect::<Vec<_>>();
        let factor = if cfg!(debug_assertions) { super::super::SMOKE } else { 1.0 };
        assert_eq!(judged(Goal::Smallest { quick: false }), [Some(2.0 * factor), None, None]);
        assert_eq!(judged(Goal::SmallestWithApi { quick: false }), [Some(20.0 * factor), None, None]);
        assert_eq!(judged(Goal::Smallest { quick: true }), [None, None, None]);
        assert_eq!(judged(Goal::Shown), [None, None, None]);
    }
}

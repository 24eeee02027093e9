//! Which tests run in parallel. Most tests wait for a process, a server or a timeout. Many of those run at the same time, but few of those
//! that start Terraform, which uses half a second of CPU time at each start. Some tests use a processor all the time: as many of
//! those run as there are processors.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread::available_parallelism,
};

use super::{
    binaries::Binary,
    cores::{self, Core},
    options::Options,
    report::Report,
};

/// Number of parallel tests that mostly wait: those that start Terraform, and the others.
const E2E_AT_A_TIME: usize = 8;
const OTHERS_AT_A_TIME: usize = 16;

/// Tests that use a processor all the time, by program and name prefix.
const BURNERS: [(&str, &str); 9] = [
    ("wrapper", "stop_races::"),
    ("wrapper", "request_gap::gap_is_found_in_large_metrics"),
    ("wrapper", "killed_wrapper::wrapper_killed"),
    ("e2e", "wrapper_restarts::"),
    ("grit_ssh", "fuzz::"),
    ("grit_ssh", "keys::"),
    ("grit_ssh", "trust::tests::"),
    ("grit_authority", ""),
    ("grit_tests", "simulation::tests::seeds_"),
];

/// Long tests, by program and name prefix. They start first, so that the end of the run does not wait for one of them.
const LONG: [(&str, &str); 15] = [
    ("e2e", "acceptance::"),
    ("e2e", "example::release_installs"),
    ("e2e", "demo::"),
    ("e2e", "rollout::"),
    ("e2e", "layouts::"),
    ("e2e", "rollout_examples::dead_managers::"),
    ("e2e", "many_managers::"),
    ("e2e", "network_cut::"),
    ("e2e", "systemd_"),
    ("e2e", "pods::"),
    ("e2e", "hosts_guide::"),
    ("e2e", "cloud_init::"),
    ("e2e", "modules::"),
    ("e2e", "interruptions::"),
    ("ssh", "phase_timeouts::"),
];

/// Prefixes of long end-to-end tests that a quick run executes only on the oldest and the newest core, and not on the one on PATH.
const NOT_ON_PATH: [&str; 1] = ["acceptance::"];

/// The prefix of end-to-end tests that need a release build, which only a nightly run has.
const NIGHTLY: &str = "distributions::";

/// The program whose tests run on several cores.
const E2E: &str = "e2e";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    EndToEnd,
    Others,
    Burners,
}

/// One process: one test, or the remaining unit tests of a program, which are many and short.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) binary: Binary,
    /// The displayed name: `e2e rollout::…`, `1.6.6 e2e rollout::…`.
    pub(crate) name: String,
    /// The libtest arguments that select its tests.
    pub(crate) arguments: Vec<String>,
    /// Its number of tests.
    pub(crate) tests: usize,
    pub(crate) pool: Pool,
    /// The core, if it is not the one on PATH.
    pub(crate) core: Option<Core>,
}

/// The number of parallel jobs of each pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Width {
    pub(crate) e2e: usize,
    pub(crate) others: usize,
    pub(crate) burners: usize,
}

impl Width {
    pub(crate) fn new(options: &Options) -> anyhow::Result<Width> {
        let processors = available_parallelism().map_or(2, usize::from);
        Ok(match options.threads()? {
            None => Width { e2e: E2E_AT_A_TIME, others: OTHERS_AT_A_TIME, burners: processors },
            Some(threads) => Width { e2e: 0, others: threads, burners: 0 },
        })
    }
}

/// All jobs, in the order of their start.
///
/// Reports the end-to-end tests that need a feature which no core of this run has.
pub(crate) fn jobs(
    binaries: &[Binary],
    cores: &[Core],
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for binary in binaries {
        let names = binary.tests(&options.tests)?;
        if options.tests.is_empty() {
            check_tables(binary, &names)?;
        }
        if binary.name == E2E {
            jobs.extend(end_to_end(binary, names, cores, options, report)?);
        } else if options.cores.is_empty() {
            jobs.extend(jobs_of(binary, names));
        }
    }
    if jobs.is_empty() {
        anyhow::bail!("no test name matches `{}`", options.tests.join(" "));
    }
    if options.threads()?.is_some() {
        // One queue for the requested number of threads.
        jobs.iter_mut().for_each(|job| job.pool = Pool::Others);
    }
    jobs.sort_by_key(|job| !is_one_of(&LONG, job));
    Ok(jobs)
}

/// The end-to-end tests, on each core that has what they need.
fn end_to_end(
    binary: &Binary,
    names: Vec<String>,
    cores: &[Core],
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    if options.nightly && options.tests.is_empty() {
        let nightly = binary.ignored(NIGHTLY)?;
        anyhow::ensure!(!nightly.is_empty(), "no test has the prefix `{NIGHTLY}`");
        let mut nightly = jobs_of(binary, nightly);
        nightly.iter_mut().for_each(|job| job.arguments.insert(0, "--ignored".to_owned()));
        jobs.extend(nightly);
    }
    // Tests that at least one core can run, and the features that the others need.
    let (mut supported, mut unsupported) = (BTreeSet::new(), BTreeMap::new());
    let mut on = |core: &Core, names: Vec<String>| {
        let (lacking, kept): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| match core.lacks(name) {
            Some(feature) => {
                unsupported.insert(name.clone(), feature.name);
                true
            }
            None => false,
        });
        if !lacking.is_empty() {
            println!("{}: {} tests need features that it does not have", core.name, lacking.len());
        }
        supported.extend(kept.iter().cloned());
        jobs_of(binary, kept)
    };
    let quick = options.cores.is_empty() && !options.nightly;
    for core in cores {
        let is_kept = |name: &&String| cores::is_kept(name, quick) && !(quick && core.leaves(name));
        let kept = names.iter().filter(is_kept).cloned().collect();
        jobs.extend(on(core, kept).into_iter().map(|job| job.on(core)));
    }
    if options.cores.is_empty() {
        let elsewhere = !options.nightly && options.tests.is_empty() && !cores.is_empty();
        let here = names.into_iter().filter(|name| !elsewhere || !is_not_on_path(name)).collect();
        jobs.extend(on(&cores::on_path()?, here));
        for (name, feature) in unsupported.into_iter().filter(|(name, _)| !supported.contains(name)) {
            report.not_run(&format!("{E2E} {name}"), format!("no core of this run has {feature}"));
        }
    }
    Ok(jobs)
}

fn is_not_on_path(name: &str) -> bool {
    NOT_ON_PATH.iter().any(|prefix| name.starts_with(prefix))
}

/// The tables of this module and of [`cores`] select tests by prefix. A prefix that selects no test would have no effect unnoticed.
fn check_tables(binary: &Binary, names: &[String]) -> anyhow::Result<()> {
    let here =
        BURNERS.iter().chain(&LONG).filter(|(program, _)| *program == binary.name).map(|(_, prefix)| *prefix);
    let cores = cores::prefixes().chain(NOT_ON_PATH).filter(|_| binary.name == E2E);
    for prefix in here.chain(cores) {
        if !names.iter().any(|name| name.starts_with(prefix)) {
            anyhow::bail!(
                "xtask selects tests of {} by the prefix `{prefix}`, but no test has it",
                binary.name
            );
        }
    }
    Ok(())
}

fn jobs_of(binary: &Binary, names: Vec<String>) -> Vec<Job> {
    let is_burner = |name: &String| {
        BURNERS.iter().any(|(program, test)| *program == binary.name && name.starts_with(test))
    };
    let one = |name: String, pool| Job {
        binary: binary.clone(),
        name: format!("{} {name}", binary.name),
        arguments: vec!["--exact".to_owned(), name],
        tests: 1,
        pool,
        core: None,
    };
    let (burners, others): (Vec<_>, Vec<_>) = names.into_iter().partition(is_burner);
    let mut jobs: Vec<_> = burners.into_iter().map(|name| one(name, Pool::Burners)).collect();
    if !binary.unit {
        let pool = if binary.name == E2E { Pool::EndToEnd } else { Pool::Others };
        jobs.extend(others.into_iter().map(|name| one(name, pool)));
    } else if !others.is_empty() {
        let tests = others.len();
        let name = format!("{} ({tests} unit tests)", binary.name);
        let arguments = ["--exact".to_owned()].into_iter().chain(others).collect();
        let binary = binary.clone();
        jobs.push(Job { binary, name, arguments, tests, pool: Pool::Others, core: None });
    }
    jobs
}

impl Job {
    fn on(mut self, core: &Core) -> Job {
        self.name = format!("{} {}", core.name, self.name);
        self.core = Some(core.clone());
        self
    }
}

fn is_one_of(list: &[(&str, &str)], job: &Job) -> bool {
    let Some(test) = job.arguments.last() else { return false };
    list.iter().any(|(program, beginning)| *program == job.binary.name && test.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn binary(name: &str, unit: bool) -> Binary {
        Binary { name: name.to_owned(), unit, path: PathBuf::new(), folder: PathBuf::new() }
    }

    #[test]
    fn only_unit_tests_that_are_not_busy_share_a_process() {
        let names = ["fuzz::tests::template", "config::empty", "config::full"].map(str::to_owned);
        let jobs = jobs_of(&binary("grit_ssh", true), names.to_vec());
        let shown: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.tests, job.pool)).collect();
        assert_eq!(
            shown,
            [
                ("grit_ssh fuzz::tests::template", 1, Pool::Burners),
                ("grit_ssh (2 unit tests)", 2, Pool::Others)
            ]
        );
        assert_eq!(jobs[1].arguments, ["--exact", "config::empty", "config::full"]);
    }

    #[test]
    fn integration_test_runs_in_separate_process() {
        let jobs = jobs_of(&binary("e2e", false), vec!["a::b".to_owned(), "rollout::c".to_owned()]);
        assert_eq!(jobs.iter().map(|job| job.tests).collect::<Vec<_>>(), [1, 1]);
        assert!(!is_one_of(&LONG, &jobs[0]) && is_one_of(&LONG, &jobs[1]));
    }
}

//! One run as data: the settings, what the users do, and the faults. A seed has one scenario, and a shorter one shows the cause of a violation.

mod courses;
mod simpler;

use std::time::Duration;

use super::{
    fault::{Aimed, Fault},
    gitlab,
    host::operator::{self, Action},
    network,
    options::{Level, Options},
    random::Random,
    runner::Kind,
    terraform::Interrupt,
    world::Inner,
};

/// The maximum number of faults in one step.
const MAX_FAULTS: u64 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scenario {
    /// All that the scenario does not say follows from this seed: durations, for example.
    pub(super) seed: u64,
    pub(super) managers: u64,
    pub(super) layout: Layout,
    pub(super) options: Options,
    pub(super) gitlab: GitlabSettings,
    pub(super) steps: Vec<Step>,
    /// One host without Terraform.
    pub(super) is_alone: bool,
    pub(super) owners: Owners,
}

/// Who owns the runners of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// The wrapper in half of the hosts, and systemd in the others.
    Both,
    Wrappers,
    Units,
}

/// The layouts of docs/guides/rollout.md and docs/guides/two-directories.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The keys of the managers stay from version to version.
    StableKeys,
    VersionsAsKeys,
    /// A directory for each version, which drains when it is destroyed.
    Directories,
    /// A directory for each version, whose runners the next version shuts down.
    Retiring,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitlabSettings {
    /// GitLab holds a request without a job for this time.
    pub(super) hold: Duration,
    /// The time of its answer on its way.
    pub(super) latency: Duration,
    /// The time of its answer to the first report of a job.
    pub(super) report: Duration,
    pub(super) check_interval: Duration,
    /// The jobs of the whole run.
    pub(super) jobs: u32,
    /// How long each job runs. Otherwise, it is random.
    pub(super) job_lasts: Option<Duration>,
    /// `[[runners]]` sections of each runner, and their settings.
    pub(super) sections: usize,
    pub(super) request_concurrency: usize,
    pub(super) runner: Kind,
    /// Worse than GitLab: it assigns a job to a request that it has held.
    pub(super) assigns_late: bool,
    pub(super) receipt: Receipt,
    /// Jobs on a page of the API.
    pub(super) page: usize,
    /// The configuration of the runners has `id`.
    pub(super) has_runner_ids: bool,
    /// It cannot list the jobs of one manager.
    pub(super) is_old_gitlab: bool,
    pub(super) unkind: Unkind,
}

/// What few installations have. Percentages are those of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unkind {
    /// Replies with a job that are lost on their way, as by a proxy: the job is lost without any drain.
    pub(super) lost_replies: u64,
    /// Jobs of a project in which the user of the token is less than a Reporter.
    pub(super) hidden_jobs: u64,
    /// Requests that GitLab needs up to 30 s for.
    pub(super) slow_answers: u64,
    /// Jobs that need longer than GitLab Runner's default `shutdown_timeout` to abort.
    pub(super) has_slow_jobs: bool,
}

/// The `gitlab` object of the provider block, and `on_lost_jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    None,
    Warn,
    Retry,
    /// `retry`, and the token may not change jobs.
    ReadOnly,
}

/// One command, and what happens in its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) command: Command,
    pub(super) faults: Vec<Timed>,
    /// One after the other.
    pub(super) aims: Vec<Aimed>,
    pub(super) interrupt: Option<Interrupt>,
    pub(super) parallelism: usize,
    /// The plan is saved, and applied after this time.
    pub(super) saved: Option<Duration>,
    /// When other users invoke `grit_drain` meanwhile, for the host with this number.
    pub(super) actions: Vec<(Duration, u64)>,
    /// After the command.
    pub(super) pause: Duration,
    pub(super) after_failure: Next,
}

/// What the user runs. A number is that of a manager, modulo the number of managers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Apply,
    RefreshOnly,
    TargetInstance(u64),
    TargetHealth,
    /// `-replace` of a drain resource.
    ReplaceDrain(u64),
    TaintDrain(u64),
    AddManager,
    RemoveManager,
    /// An update in place.
    Change(Options),
    /// `GRIT_ASSUME_TERMINATED` for the instances that do not exist.
    NameGone,
    /// `GRIT_ASSUME_TERMINATED` for an instance that exists: the user's mistake.
    NameRunning(u64),
}

/// What the user does after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Repeat,
    /// To the version before.
    RollBack,
    /// To the next version.
    Forward,
}

/// A fault of the host with this number, modulo the number of hosts at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) after: Duration,
    pub(super) host: u64,
    pub(super) fault: Fault,
}

impl Scenario {
    /// The scenario of this seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let random = &mut random;
        let mut scenario = Self {
            seed,
            managers: random.below(3) + 1,
            layout: match random.below(10) {
                0..3 => Layout::StableKeys,
                3..6 => Layout::VersionsAsKeys,
                6..8 => Layout::Directories,
                _ => Layout::Retiring,
            },
            options: Options::new(random),
            gitlab: GitlabSettings::new(random, &mut Random::new(seed ^ 0x0bad)),
            steps: (0..=random.below(3)).map(|_| Step::new(random)).collect(),
            is_alone: random.percent(40),
            owners: Owners::Both,
        };
        if scenario.is_alone {
            scenario.gitlab.jobs = *random.pick(&[400, 400, 20]);
            scenario.steps = (0..4).map(|_| Step::alone(random)).collect();
        }
        scenario.settle();
        scenario
    }

    /// The settings of the resources that depend on GitLab and the runners.
    fn settle(&mut self) {
        let word = match self.gitlab.receipt {
            Receipt::None => None,
            Receipt::Warn => Some("warn"),
            Receipt::Retry | Receipt::ReadOnly => Some("retry"),
        };
        let has_server = self.gitlab.runner != Kind::NoServer;
        let of_steps = self.steps.iter_mut().filter_map(|step| match &mut step.command {
            Command::Change(options) => Some(options),
            _ => None,
        });
        for options in of_steps.chain([&mut self.options]) {
            options.on_lost_jobs = word;
            // Without `listen_address`, each health check with another level fails.
            if !has_server {
                options.level = Level::Process;
            }
        }
    }
}

impl GitlabSettings {
    fn new(random: &mut Random, rare: &mut Random) -> Self {
        let unkind = Unkind::new(rare);
        let hold = *random.pick(&[Duration::ZERO, Duration::from_secs(50)]);
        let latency = match random.below(10) {
            0..5 => random.millis(5, 400),
            _ => random.millis(400, 3_000),
        };
        Self {
            hold,
            latency,
            report: if random.percent(3) { random.millis(3_000, 9_000) } else { latency },
            check_interval: Duration::from_secs(*random.pick(&[3, 3, 3, 1, 10])),
            jobs: 100,
            job_lasts: None,
            sections: *random.pick(&[1, 1, 2, 4]),
            request_concurrency: *random.pick(&[1, 1, 2, 4]),
            runner: match random.below(20) {
                0..12 => Kind::Current,
                12..17 => Kind::Old,
                17 => Kind::NoServer,
                _ => Kind::Routed,
            },
            assigns_late: !hold.is_zero() && random.percent(5),
            receipt: *random.pick(&[
                Receipt::None,
                Receipt::Warn,
                Receipt::Retry,
                Receipt::Retry,
                Receipt::ReadOnly,
            ]),
            page: *random.pick(&[1, 2, 100]),
            has_runner_ids: !random.percent(3),
            is_old_gitlab: random.percent(3),
            unkind,
        }
    }
}

impl Unkind {
    fn new(random: &mut Random) -> Self {
        let mut percent = |of: &[u64]| if random.percent(4) { *random.pick(of) } else { 0 };
        Self {
            lost_replies: percent(&[3, 10]),
            hidden_jobs: percent(&[10, 50]),
            slow_answers: percent(&[5, 20]),
            has_slow_jobs: random.percent(50),
        }
    }
}

impl Step {
    fn new(random: &mut Random) -> Self {
        let long = random.percent(10).then(|| Timed::long(random));
        Self {
            command: Command::new(random),
            faults: (0..random.below(MAX_FAULTS)).map(|_| Timed::new(random)).chain(long).collect(),
            aims: (0..random.below(4).saturating_sub(2)).map(|_| courses::in_rollout(random)).collect(),
            interrupt: random.percent(20).then(|| interrupt(random)),
            parallelism: *random.pick(&[10, 10, 10, 1, 30]),
            saved: random.percent(10).then(|| random.millis(1_000, 60_000)),
            actions: (0..random.below(4).saturating_sub(2))
                .map(|_| (random.millis(100, 60_000), random.below(1_000)))
                .collect(),
            pause: random.millis(1_000, 60_000),
            after_failure: match random.below(10) {
                0..2 => Next::RollBack,
                2 => Next::Forward,
                _ => Next::Repeat,
            },
        }
    }
}

impl Step {
    /// Of a host without Terraform: many faults, and often one just after another.
    fn alone(random: &mut Random) -> Self {
        if random.percent(80) {
            return Self::aimed(random);
        }
        let mut after = random.millis(0, 20_000);
        let faults = (0..random.below(30)).map(|_| {
            let is_in_burst = random.percent(60);
            after += if is_in_burst { random.millis(0, 700) } else { random.millis(0, 20_000) };
            Timed { after, host: 0, fault: Inner::fault_of_a_host(random, is_in_burst) }
        });
        let mut faults: Vec<_> = faults.collect();
        let mut add = |pauses: Vec<(Duration, Fault)>| {
            for (pause, fault) in pauses {
                after += pause;
                faults.push(Timed { after, host: 0, fault });
            }
        };
        if random.percent(50) {
            // Killed in a drain, and the next request comes at once.
            add(vec![(random.millis(0, 10_000), Fault::Host(Action::Start))]);
            add(operator::killed_in_drain(random).to_vec());
        }
        if random.percent(50) {
            add(vec![(random.millis(0, 10_000), Fault::Host(Action::Start))]);
            add(operator::around_systemd(random));
        }
        Self { pause: after + Duration::from_secs(5), ..Self::quiet(faults) }
    }

    /// Of a host without Terraform: the way to one row of the table, and little else.
    fn aimed(random: &mut Random) -> Self {
        let (aims, lasts) = courses::to_row(random);
        // The way begins with a runner that is running.
        let start = |after, action| Timed { after, host: 0, fault: Fault::Host(action) };
        let mut faults = vec![
            start(Duration::ZERO, Action::ServiceStarts),
            start(Duration::from_secs(1), Action::Cancel),
            start(Duration::from_secs(2), Action::Start),
        ];
        if random.percent(30) {
            let (after, fault) = (random.millis(0, 20_000), Inner::fault_of_a_host(random, true));
            faults.push(Timed { after, host: 0, fault });
        }
        Self { aims, pause: lasts, ..Self::quiet(faults) }
    }

    fn quiet(faults: Vec<Timed>) -> Self {
        Self {
            command: Command::Apply,
            faults,
            aims: Vec::new(),
            interrupt: None,
            parallelism: 10,
            saved: None,
            actions: Vec::new(),
            pause: Duration::from_secs(5),
            after_failure: Next::Repeat,
        }
    }
}

impl Command {
    fn new(random: &mut Random) -> Self {
        match random.below(40) {
            0 => Self::RefreshOnly,
            1 => Self::TargetInstance(random.below(10)),
            2 => Self::TargetHealth,
            3 => Self::ReplaceDrain(random.below(10)),
            4 => Self::TaintDrain(random.below(10)),
            5..7 => Self::AddManager,
            7..9 => Self::RemoveManager,
            9..11 => Self::Change(Options::new(random)),
            11 => Self::NameGone,
            12 => Self::NameRunning(random.below(10)),
            _ => Self::Apply,
        }
    }
}

fn interrupt(random: &mut Random) -> Interrupt {
    let after = random.millis(100, 60_000);
    match random.below(10) {
        0..6 => Interrupt::Once(after),
        6..8 => Interrupt::Twice(after, random.millis(10, 1_000)),
        8 => Interrupt::Kill(after),
        _ if random.percent(50) => Interrupt::Kill(random.millis(100, 10_000)),
        _ => Interrupt::KillWithoutState(after),
    }
}

impl Timed {
    fn new(random: &mut Random) -> Self {
        Self { after: random.millis(0, 120_000), host: random.below(1_000), fault: fault(random) }
    }

    /// A host that cannot be reached until after the timeout of its drain.
    fn long(random: &mut Random) -> Self {
        let fault = network::Fault::Fails(*random.pick(&network::Failure::ALL));
        let fault = Fault::Network { fault, lasts: random.millis(20_000, 300_000) };
        Self { after: random.millis(0, 5_000), host: random.below(1_000), fault }
    }
}

fn fault(random: &mut Random) -> Fault {
    if random.percent(12) {
        return Fault::Gitlab { fault: gitlab::Fault::new(random), lasts: random.millis(500, 150_000) };
    }
    match random.below(19) {
        0..4 => Fault::KillWrapper,
        4..6 => Fault::KillWrapperIn { steps: u32::try_from(random.below(12)).unwrap_or_default() },
        6 => Fault::ResetHost,
        7..9 => Fault::DiskFails { lasts: random.millis(1_000, 91_000) },
        9 => Fault::RunnerCrashes,
        14.. => Fault::Host(Action::in_rollout(random)),
        _ => {
            let fault = match random.percent(70) {
                true => network::Fault::Fails(*random.pick(&network::Failure::ALL)),
                false => *random.pick(&network::Fault::OTHERS),
            };
            Fault::Network { fault, lasts: random.millis(500, 120_000) }
        }
    }
}

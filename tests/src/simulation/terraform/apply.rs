//! The apply: each change when those before it have ended, at most `-parallelism` at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Config, Ended, Interrupt, Kind, Object, Planning, Terraform,
    calls::{Errors, Process},
    change::Stored,
    graph::{Node, Step},
    plan::Change,
};
use crate::simulation::origin::Origin;

/// Terraform's default of `-parallelism`.
const PARALLELISM: usize = 10;

/// drain-start: "after Ctrl-C, a drain ends within 15 s".
const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// One `terraform apply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::simulation) struct Apply {
    pub(in crate::simulation) planning: Planning,
    pub(in crate::simulation) interrupt: Option<Interrupt>,
    pub(in crate::simulation) parallelism: usize,
    /// The plan is saved, and applied after this time.
    pub(in crate::simulation) waits: Option<Duration>,
}

impl Default for Apply {
    fn default() -> Self {
        Self { planning: Planning::default(), interrupt: None, parallelism: PARALLELISM, waits: None }
    }
}

/// The steps of an apply.
struct Walk {
    nodes: Vec<Node>,
    started: BTreeMap<usize, (Instant, Option<Object>)>,
    done: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    errors: Errors,
    /// When StopProvider was sent.
    stopped: Option<Instant>,
}

impl Terraform {
    pub(in crate::simulation) async fn apply(&mut self, config: &Config, apply: &Apply) -> Ended {
        let begin = Instant::now();
        let changes = match self.plan(config, &apply.planning).await {
            Ok(changes) => changes,
            Err(errors) => return self.ended(Ended::Refused(errors)),
        };
        self.check_plan(config, &apply.planning, &changes);
        if apply.planning.refresh_only {
            return self.ended(Ended::Done);
        }
        if let Some(waits) = apply.waits {
            self.world.now().trace.count("saved plan applied");
            sleep(waits).await;
        }
        let errors = self.perform(config, apply, &changes, begin).await;
        self.ended(if errors.is_empty() { Ended::Done } else { Ended::Failed(errors) })
    }

    fn ended(&self, ended: Ended) -> Ended {
        let mut world = self.world.now();
        match &ended {
            Ended::Done => {
                world.trace.count("apply done");
                world.log("terraform", "apply done");
            }
            Ended::Refused(errors) | Ended::Failed(errors) => {
                for error in errors {
                    world.trace.count(format!("apply: {error}"));
                }
                world.log("terraform", format!("apply failed: {}", errors.join("; ")));
            }
        }
        ended
    }

    /// Returns the errors.
    async fn perform(
        &mut self,
        config: &Config,
        apply: &Apply,
        changes: &[Change],
        begin: Instant,
    ) -> Errors {
        for instance in self.without_order() {
            self.world.now().trace.count("terraform: a deposed drain without a current one (M6)");
            // rollout: "Never send SIGKILL."
            self.allowed.entry(instance).or_insert("terraform was killed while it replaced its drain");
        }
        let origin = Arc::new(self.origin(config, &apply.planning, changes));
        let process = Process::start(&self.world, &self.assumed, &origin).await;
        let before = self.state.clone();
        let walk = Walk {
            nodes: self.nodes(changes),
            started: BTreeMap::new(),
            done: BTreeSet::new(),
            failed: BTreeSet::new(),
            errors: Errors::new(),
            stopped: None,
        };
        let (errors, is_killed) = self.walk(&process, &origin, config, apply, walk, begin).await;
        if is_killed && matches!(apply.interrupt, Some(Interrupt::KillWithoutState(_))) {
            self.lose_state(before);
        }
        errors
    }

    /// Returns the errors, and whether Terraform was killed.
    async fn walk(
        &mut self,
        process: &Process,
        origin: &Arc<Origin>,
        config: &Config,
        apply: &Apply,
        mut walk: Walk,
        begin: Instant,
    ) -> (Errors, bool) {
        let (stop, cut) = times(apply.interrupt, begin);
        let mut running: FuturesUnordered<BoxFuture<'static, (usize, Stored)>> = FuturesUnordered::new();
        loop {
            while let Some(number) = walk.next(running.len(), apply.parallelism) {
                self.traces("start", &walk.nodes[number]);
                let (prior, work) = self.start(process, origin, config, &walk.nodes[number]);
                walk.started.insert(number, (Instant::now(), prior));
                running.push(work.map(move |result| (number, result)).boxed());
            }
            if running.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                Some((number, result)) = running.next() => self.step_ends(origin, config, &mut walk, number, result),
                () = wait_until(cut) => {
                    drop(running);
                    self.cut(&walk, apply.interrupt);
                    walk.errors.push("killed ()".to_owned());
                    return (walk.errors, true);
                }
                () = wait_until(stop), if walk.stopped.is_none() => {
                    walk.stopped = Some(Instant::now());
                    self.world.now().log("terraform", "the user interrupts the apply");
                    process.stop().await;
                }
            }
        }
        if walk.stopped.is_some() && walk.started.len() < walk.nodes.len() && walk.errors.is_empty() {
            walk.errors.push("interrupted ()".to_owned());
        }
        (walk.errors, false)
    }

    /// As in the output of `terraform apply -json`.
    fn traces(&self, word: &str, node: &Node) {
        let action = match node.step {
            Step::Create | Step::Replace { .. } => "create",
            Step::Update => "update",
            Step::Destroy { .. } => "delete",
        };
        let address = match node.kind {
            Kind::Instance => format!("lab_instance.manager[\"{}\"]", node.key),
            Kind::Drain => format!("grit_runner_drain.manager[\"{}\"]", node.key),
            Kind::Health => "grit_runner_health.all".to_owned(),
            Kind::Shutdown => "grit_runner_shutdown.old".to_owned(),
        };
        self.world.now().traces.terraform.push(format!("{word} {action} {address}"));
    }

    fn step_ends(
        &mut self,
        origin: &Origin,
        config: &Config,
        walk: &mut Walk,
        number: usize,
        result: Stored,
    ) {
        let node = &walk.nodes[number];
        if let Some((since, prior)) = walk.started.get(&number) {
            match node.kind {
                Kind::Drain => self.check_drain(origin, node, prior.as_ref(), *since, &result),
                Kind::Shutdown => self.check_shutdown(origin, config, prior.as_ref(), *since, &result),
                Kind::Instance | Kind::Health => {}
            }
        }
        let took = walk.stopped.map(|at| at.elapsed()).filter(|took| *took > STOPS_WITHIN);
        if let Some(took) = took.filter(|_| node.kind != Kind::Instance) {
            let what = format!("a call for {:?} {:?} ends {took:?} after StopProvider", node.kind, node.key);
            self.world.now().violation("terraform", what);
        }
        let failures = self.store(node, result);
        self.traces(if failures.is_empty() { "complete" } else { "error" }, node);
        if failures.is_empty() {
            walk.done.insert(number)
        } else {
            walk.failed.insert(number)
        };
        walk.errors.extend(failures);
    }

    /// The calls are cut, and Terraform ends. After the second SIGINT, it saves the state; after SIGKILL, the file has the state of the last write,
    /// which may be before or after the start of a replacement.
    fn cut(&mut self, walk: &Walk, how: Option<Interrupt>) {
        let mut cut = Vec::new();
        for number in walk.started.keys() {
            if !walk.done.contains(number) && !walk.failed.contains(number) {
                cut.push(walk.nodes[*number].clone());
            }
        }
        let is_killed = !matches!(how, Some(Interrupt::Twice(..)));
        let what = if is_killed { "terraform is killed" } else { "the user interrupts the apply again" };
        self.world.now().log("terraform", format!("{what} in {} calls", cut.len()));
        self.world.now().trace.count(what);
        for node in cut {
            let is_written = is_killed && self.world.now().random.percent(50);
            if !is_written {
                self.restore_deposed(&node);
            }
            if matches!(node.step, Step::Replace { .. }) {
                self.world.now().trace.count(format!("{what} in a replacement"));
            }
        }
    }

    /// layouts-that-fail: "`kill -9` of `tofu`, or of `terraform` with a remote backend".
    fn lose_state(&mut self, before: Vec<Object>) {
        let known: BTreeSet<_> = before.iter().filter_map(Object::instance).collect();
        let lost: Vec<_> = self.instances().into_iter().filter(|id| !known.contains(id)).collect();
        let kept: BTreeSet<_> =
            before.iter().filter(|it| it.kind == Kind::Drain).filter_map(Object::instance).collect();
        let drains = self.of_kind(Kind::Drain).filter_map(Object::instance).filter(|id| !kept.contains(id));
        for id in drains.collect::<Vec<_>>() {
            self.allowed.entry(id).or_insert("terraform was killed, and its state lacks the drain resource");
        }
        let mut world = self.world.now();
        world.trace.count("terraform is killed, and its state is that before the apply");
        world.log("terraform", format!("the state lacks {lost:?}"));
        drop(world);
        self.state = before;
    }
}

impl Walk {
    /// The next step that can start.
    fn next(&mut self, running: usize, parallelism: usize) -> Option<usize> {
        for (number, node) in self.nodes.iter().enumerate() {
            if node.after.iter().any(|before| self.failed.contains(before)) {
                self.failed.insert(number);
            }
        }
        if self.stopped.is_some() || running >= parallelism {
            return None;
        }
        let is_ready = |(number, node): &(usize, &Node)| {
            !self.started.contains_key(number)
                && !self.failed.contains(number)
                && node.after.iter().all(|before| self.done.contains(before))
        };
        self.nodes.iter().enumerate().find(is_ready).map(|(number, _)| number)
    }
}

/// When StopProvider is sent, and when the calls are cut.
fn times(interrupt: Option<Interrupt>, begin: Instant) -> (Option<Instant>, Option<Instant>) {
    match interrupt {
        None => (None, None),
        Some(Interrupt::Once(stop)) => (Some(begin + stop), None),
        Some(Interrupt::Twice(stop, cut)) => (Some(begin + stop), Some(begin + stop + cut)),
        Some(Interrupt::Kill(cut) | Interrupt::KillWithoutState(cut)) => (None, Some(begin + cut)),
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

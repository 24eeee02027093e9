//! Scenarios that leave out one thing, to find the shortest run with a violation.

use std::time::Duration;

use super::{Command, Next, Owners, Receipt, Scenario, Unkind};
use crate::simulation::{options::Options, runner::Kind};

impl Scenario {
    /// Scenarios that leave out one thing of this one.
    pub(in crate::simulation) fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut simpler = self.clone();
            change(&mut simpler);
            simpler.settle();
            if simpler != *self {
                all.push(simpler);
            }
        };
        for step in 0..self.steps.len() {
            add(&|it| {
                it.steps.remove(step);
            });
            for fault in 0..self.steps[step].faults.len() {
                add(&|it| {
                    it.steps[step].faults.remove(fault);
                });
            }
            add(&|it| it.steps[step].aims.clear());
            for aim in 0..self.steps[step].aims.len() {
                add(&|it| {
                    it.steps[step].aims.remove(aim);
                });
            }
            for action in 0..self.steps[step].actions.len() {
                add(&|it| {
                    it.steps[step].actions.remove(action);
                });
            }
            add(&|it| it.steps[step].interrupt = None);
            add(&|it| it.steps[step].saved = None);
            add(&|it| it.steps[step].after_failure = Next::Repeat);
            add(&|it| it.steps[step].command = Command::Apply);
        }
        add(&|it| it.managers = 1);
        for owners in [Owners::Wrappers, Owners::Units] {
            if self.owners == Owners::Both {
                add(&|it| it.owners = owners);
            }
        }
        add(&|it| it.gitlab.jobs = 0);
        add(&|it| it.gitlab.jobs /= 2);
        add(&|it| it.gitlab.hold = Duration::ZERO);
        add(&|it| it.gitlab.report = it.gitlab.latency);
        add(&|it| it.gitlab.sections = 1);
        add(&|it| it.gitlab.request_concurrency = 1);
        add(&|it| it.gitlab.runner = Kind::Current);
        add(&|it| it.gitlab.receipt = Receipt::None);
        add(&|it| it.gitlab.page = 100);
        add(&|it| it.gitlab.unkind = Unkind::default());
        add(&|it| it.options = Options::usual());
        add(&|it| it.options.start_drains = true);
        add(&|it| it.options.start_if_stopped = false);
        add(&|it| it.options.attempts = None);
        all
    }
}

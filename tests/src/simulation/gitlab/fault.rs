//! What is wrong with GitLab for some time.

use std::time::Duration;

use tokio::time::Instant;

use super::Gitlab;
use crate::simulation::{random::Random, world::Inner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum Fault {
    /// Nothing answers.
    Away,
    /// Server errors.
    Unavailable,
    /// It rejects the runners. After three times, a runner disables the section for an hour.
    Forbidden,
    /// Its administrator has paused the runners: they get no job.
    Paused,
    Slow,
    /// Its API rejects the token.
    ApiRefuses(u16),
    /// Its API limits the rate.
    ApiLimits,
    ApiHangs,
}

impl Fault {
    pub(in crate::simulation) fn new(random: &mut Random) -> Self {
        match random.below(16) {
            0..3 => Self::Away,
            3..5 => Self::Unavailable,
            5..7 => Self::Forbidden,
            7..9 => Self::Paused,
            9..11 => Self::Slow,
            11..14 => Self::ApiRefuses(*random.pick(&[401, 403, 404])),
            14 => Self::ApiLimits,
            _ => Self::ApiHangs,
        }
    }
}

impl Gitlab {
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.filter(|(_, end)| Instant::now() < *end).map(|(fault, _)| fault)
    }

    /// Whether the reports of the runners arrive.
    pub(in crate::simulation) fn takes_reports(&self) -> bool {
        !matches!(self.fault(), Some(Fault::Away | Fault::Unavailable))
    }

    pub(in crate::simulation) fn end_fault(&mut self) {
        self.fault = None;
        (self.settings.unkind.lost_replies, self.settings.unkind.slow_answers) = (0, 0);
        self.hasten_logs();
    }
}

impl Inner {
    pub(in crate::simulation) fn gitlab_fails(&mut self, fault: Fault, lasts: Duration) {
        self.log("gitlab", format!("{fault:?} for {lasts:?}"));
        self.trace.count(format!("fault: gitlab {fault:?}"));
        let end = Instant::now() + lasts;
        self.gitlab.fault = Some((fault, end));
        if !self.gitlab.takes_reports() {
            self.gitlab.delay_logs(end);
        }
    }
}

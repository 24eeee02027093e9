//! What a destroy does on the host, and how its result is reported.

use grit_plugin::{
    Problem, Problems, call,
    schema::{AttributePath, Value},
};
use tokio::time::Instant;

use super::{RunnerDrain, state::DrainState};
use crate::{
    assume_terminated,
    client::WrapperClient,
    config::{drain::DRAIN_ATTEMPTS, provider_block::Configured},
    explain::drain::{self, AssumeSetting, Subject},
    fleet::drain::{DrainPolicy, Drained, NotDrained},
    log_key as key,
    resources::draining::{Draining, report_end},
};

impl RunnerDrain {
    /// Drains the runner of a drain resource. `start` is the time of the destroy call: the timeout counts from there.
    pub(super) async fn shut_down(
        &self,
        prior: &DrainState,
        client: &WrapperClient,
        known: &Configured,
        start: Instant,
    ) -> Result<(), Problems> {
        let name = prior.name();
        let setting = prior.assume_setting();
        let policy = prior.policy(known, start, setting);
        tracing::info!({ key::MANAGER } = name, { key::REASON } = policy.request.reason, "drain started");
        let id = prior.identifiers().next().unwrap_or_default();
        let draining =
            Draining { shared: &self.shared, known, name: &name, client, options: prior.options() };
        match draining.run(client, &policy, &call().stop).await {
            Ok(Drained::Ended(ended)) => {
                report_end(&name, &AttributePath::root(), Subject::Drain, &policy, &ended);
            }
            Ok(Drained::AssumedTerminated { attempts, waited, error }) => {
                let setting = setting.unwrap_or(AssumeSetting::Attribute);
                call().warn(drain::assumed_terminated(&name, attempts, waited, &error, setting));
            }
            Ok(Drained::InProgress(_)) => {
                return Err(Problem::bug("A drain ended before its runner had exited").into());
            }
            Err(failure) => {
                let path = match &failure {
                    NotDrained::TooFewPeers { .. } => AttributePath::new("guard"),
                    _ => AttributePath::root(),
                };
                let problem = drain::not_drained(&name, &failure, id, setting, Subject::Drain);
                return Err(problem.at(path).into());
            }
        }
        Ok(())
    }
}

impl DrainState {
    /// The ids that `GRIT_ASSUME_TERMINATED` can contain for this drain: of the instance, and its own.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = &str> {
        let values = [&self.instance_id, &self.id].into_iter();
        values.filter_map(Value::as_ref_option).map(String::as_str).filter(|id| !id.is_empty())
    }

    /// The setting that treats an absent host as terminated, if one is set.
    pub(super) fn assume_setting(&self) -> Option<AssumeSetting> {
        if assume_terminated::names(self.identifiers()) {
            Some(AssumeSetting::Variable)
        } else if self.options().assumes_terminated() {
            Some(AssumeSetting::Attribute)
        } else {
            None
        }
    }
    /// The id of the drain resource makes a repeated destroy the same drain.
    fn policy(&self, known: &Configured, start: Instant, setting: Option<AssumeSetting>) -> DrainPolicy {
        let retry = known.retry(self.retry.as_ref_option(), Some(DRAIN_ATTEMPTS));
        let policy = self.options().policy(self.id(), start, self.timeout(), retry);
        DrainPolicy { on_unreachable: AssumeSetting::on_unreachable(setting), ..policy }
    }
}

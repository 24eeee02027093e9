//! What a destroy does on the host, and how its result is reported.

use grit_plugin::{Problem, Problems, call, schema::AttributePath};
use tokio::time::Instant;

use super::{RunnerDrain, state::DrainState};
use crate::{
    config::provider_block::Configuration,
    explain::{
        self,
        drain::{self, DrainWords, Subject},
    },
    fleet::{absence, drain::Drained, draining::Draining},
    manager::Manager,
    resources::report::{report_end, report_receipt},
};

impl RunnerDrain {
    /// Drains the runner of a drain resource. `start` is the time of the destroy call: the timeout counts from there. The id of the drain resource
    /// makes a repeated destroy the same drain.
    pub(super) async fn shut_down(
        &self,
        prior: &DrainState,
        manager: &Manager,
        configuration: &Configuration,
        start: Instant,
    ) -> Result<(), Problems> {
        let (options, run) = (prior.options(), &self.context.run);
        let (name, assumed) = (&manager.name, run.assumed());
        let gone = assumed.contains(prior.identifiers());
        let policy = options.policy(configuration, prior.id(), start, prior.timeout(), gone);
        tracing::info!(manager = name, reason = policy.request.reason, "drain started");
        let (identifier, gitlab) = (prior.identifiers().next().unwrap_or_default(), configuration.gitlab());
        let draining = Draining { run, manager, policy: &policy, identifier, gitlab };
        let (outcome, receipt) = draining.run(&manager.client(), &call().stop).await;
        report_receipt(name, &AttributePath::root(), receipt.as_ref());
        match outcome {
            Ok(Drained::Ended(ended)) => {
                report_end(name, &AttributePath::root(), Subject::Drain, &policy, &ended);
                Ok(())
            }
            Ok(Drained::AssumedTerminated { attempts, waited, error, .. }) => {
                let setting = policy.on_unreachable;
                call().warn(drain::assumed_terminated(name, attempts, waited, &error, setting));
                Ok(())
            }
            Ok(Drained::InProgress(_)) => {
                Err(Problem::bug("A drain ended before its runner had exited").into())
            }
            Err(failure) => {
                let (contacts, stop) = (&configuration.contacts, &call().stop);
                let offer = absence::offer(&failure, name, contacts, &policy, stop).await;
                let words = DrainWords {
                    manager: name,
                    subject: Subject::Drain,
                    on_unreachable: policy.on_unreachable,
                    identifier,
                    names_others: assumed.is_set() && !gone,
                    offer: offer.as_ref(),
                    others: "",
                };
                Err(explain::failure(&words, &failure).into())
            }
        }
    }
}

//! The log lines and warnings about a runner that has exited.

use grit_plugin::{call, schema::AttributePath};

use crate::{
    client::DrainInfo,
    duration::human,
    explain::{
        drain::{self, Subject},
        receipt,
    },
    fleet::{
        drain::{DrainPolicy, Ended, StartedBy},
        receipt::Receipt,
    },
};

/// Logs an empty list of jobs, and warns about lost jobs and about what prevents the list. `path`: the attribute of the manager.
pub(crate) fn report_receipt(name: &str, path: &AttributePath, receipt: Option<&Receipt>) {
    let Some(receipt) = receipt else { return };
    if receipt.is_empty_list() {
        tracing::info!(manager = name, "{}", receipt::EMPTY);
    }
    for warning in receipt::warnings(name, receipt) {
        call().warn(warning.at(path.clone()));
    }
}

/// Logs how the runner exited, and warns if it did not exit cleanly. `path`: the attribute of the manager.
pub(crate) fn report_end(
    name: &str,
    path: &AttributePath,
    subject: Subject,
    policy: &DrainPolicy,
    ended: &Ended,
) {
    let reason = &ended.snapshot.report.failure_reason;
    let waited = human(ended.waited);
    match ended.started_by {
        StartedBy::Before => {
            tracing::info!(manager = name, reason, "runner was already stopped");
        }
        StartedBy::Joined | StartedBy::Here => {
            let joined = ended.started_by == StartedBy::Joined;
            let outcome = ended.snapshot.drain().and_then(DrainInfo::outcome_text);
            tracing::info!(
                manager = name,
                waited,
                forced = ended.forced,
                joined,
                reason,
                outcome,
                "runner exited"
            );
        }
    }
    for warning in drain::end::warnings(name, ended, policy, subject) {
        call().warn(warning.at(path.clone()));
    }
}

//! What a wrapper reports about its runner, as computed attributes that the health check and the status have in common.

use grit_plugin::schema::{Value, computed_number, computed_text};

use super::object::object;
use crate::{
    client::Snapshot,
    config::computed::{optional_value, rfc3339},
};

object! {
    /// The values of one report. A value that the wrapper does not report is null.
    ///
    /// `have` and `when` are parts of the descriptions of the numbers of jobs.
    #[derive(Debug)]
    pub(crate) struct Observed(have, when) {
        pub(crate) version: Value<String> = computed_text => "Version reported by the runner.";
        pub(crate) pid: Value<i64> = computed_number => "PID of the runner process.";
        pub(crate) started_at: Value<String> = computed_text => "Start time of the process (RFC 3339, UTC).";
        pub(crate) jobs: Value<i64> = computed_number => format!("Number of running jobs{when}.");
        #[serde(default)]
        pub(crate) jobs_succeeded: Value<i64> = computed_number =>
            format!("Number of jobs that {have} succeeded since the start of the process{when}.");
        #[serde(default)]
        pub(crate) wrapper: Value<String> = computed_text => "`grit-wrapper` with its version, or `upstream`.";
    }
}

impl Observed {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let detail = snapshot.detail.as_deref();
        let evidence = detail.map(|detail| &detail.evidence);
        Self {
            version: optional_value(detail.and_then(|detail| detail.runner_version.clone())),
            pid: optional_value(detail.and_then(|detail| detail.pid).map(i64::from)),
            started_at: optional_value(detail.and_then(|detail| detail.started_at).and_then(rfc3339)),
            jobs: optional_value(detail.and_then(|detail| detail.jobs).map(i64::from)),
            jobs_succeeded: count(evidence.and_then(|it| it.jobs_succeeded)),
            wrapper: Value::Value(snapshot.wrapper()),
        }
    }
}

/// A counter of the runner.
pub(crate) fn count(jobs: Option<u64>) -> Value<i64> {
    optional_value(jobs.and_then(|jobs| jobs.try_into().ok()))
}

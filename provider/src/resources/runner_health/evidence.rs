//! The verified health of one runner manager.

use grit_plugin::schema::{Value, computed_text};
use time::OffsetDateTime;

use crate::{
    client::{Level, Snapshot},
    config::{
        computed::{optional_value, rfc3339},
        object::object,
        observed::Observed,
    },
};

object! {
    #[derive(Debug)]
    pub(super) struct Evidence {
        pub(super) state: Value<String> = computed_text =>
            "Runner state in the last report of the wrapper; `unreachable` when the wrapper did not respond.";
        pub(super) level: Value<String> = computed_text =>
            "Health level in the last report; at most `polling`, unless `level = \"working\"` is set.";
        pub(super) verified_at: Value<String> = computed_text => "Time at which the health was verified (RFC 3339, UTC).";
        #[serde(default)]
        pub(super) problem: Value<String> = computed_text =>
            "Why the last refresh reported the runner manager as not healthy; null when it is healthy.";
        ..pub(super) observed: Observed("had", " when the health was verified");
    }
}

impl Evidence {
    /// The evidence in `snapshot`. Upstream's wrapper reports only that the process was started.
    pub(super) fn new(snapshot: &Snapshot, level_cap: Level, now: OffsetDateTime) -> Self {
        let detail = snapshot.detail.as_deref();
        let level = detail.map_or(Level::Process, |detail| detail.level.min(level_cap));
        Self {
            state: Value::Value(snapshot.report.status.to_string()),
            level: Value::Value(level.to_string()),
            verified_at: optional_value(rfc3339(now)),
            problem: Value::Null,
            observed: Observed::of(snapshot),
        }
    }

    /// Takes over the present values. The numbers of jobs and `verified_at` stay: they belong to the verification.
    pub(super) fn update(&mut self, snapshot: &Snapshot, level_cap: Level) {
        let Self { state, level, observed, .. } = Self::new(snapshot, level_cap, OffsetDateTime::UNIX_EPOCH);
        let Observed { jobs, jobs_succeeded, .. } = self.observed;
        self.observed = Observed { jobs, jobs_succeeded, ..observed };
        (self.state, self.level) = (state, level);
    }
}

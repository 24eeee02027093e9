//! The evidence that a runner has exited, or that its shutdown is in progress.

use grit_plugin::schema::{Value, computed_text};
use time::OffsetDateTime;

use crate::{
    client::{DrainInfo, Snapshot},
    config::{
        computed::{optional_value, rfc3339},
        object::object,
    },
    explain::receipt,
    fleet::{drain::Ended, receipt::Receipt},
    manager::UNVERIFIED_PEER,
};

const STOPPED: &str = "stopped";
const ASSUMED_TERMINATED: &str = "assumed_terminated";

object! {
    /// What was recorded of one manager.
    #[derive(Debug)]
    pub(super) struct Evidence {
        pub(super) state: Value<String> = computed_text =>
            "`stopped`: the wrapper reported the exit of the process; `assumed_terminated`: the host was unreachable, and you \
             confirmed that it is gone; `draining` or `terminating`: the shutdown is in progress (`wait = false`).";
        pub(super) exit: Value<String> = computed_text => "Exit status of the runner process, such as `exit code 0`.";
        pub(super) outcome: Value<String> = computed_text =>
            "Result of the drain: `clean`, `clean; open requests unknown` (the runner does not report its open job requests), \
             `jobs_aborted`, `results_lost`, `open_requests`, `killed`, `failed`, `unknown` or `no_runner`.";
        pub(super) receipt: Value<String> = computed_text => format!(
            "Running jobs of the runner manager that GitLab lists after the exit of the runner: `{}`, or their number. Null if the provider \
             did not read this list.",
            receipt::EMPTY
        );
        pub(super) wrapper: Value<String> = computed_text => format!(
            "`grit-wrapper` with its version, or `upstream`. For a `tcp://` address, the text ends with `({UNVERIFIED_PEER})`: another \
             program on the host could respond at this address."
        );
        pub(super) verified_at: Value<String> = computed_text => "Time at which the exit was verified (RFC 3339, UTC).";
    }
}

impl Evidence {
    /// The report of the wrapper that the process has exited.
    pub(super) fn stopped(
        ended: &Ended,
        receipt: Option<&Receipt>,
        protected: bool,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            receipt: optional_value(receipt.and_then(receipt::text)),
            verified_at: optional_value(rfc3339(now)),
            ..Self::of(STOPPED, &ended.snapshot, protected)
        }
    }

    /// The shutdown is in progress.
    pub(super) fn in_progress(snapshot: &Snapshot, protected: bool) -> Self {
        let drain = snapshot.drain();
        let forceful = drain.is_some_and(|drain| drain.forceful);
        Self::of(if forceful { "terminating" } else { "draining" }, snapshot, protected)
    }

    /// The user confirmed that the host is gone.
    pub(super) fn assumed() -> Self {
        Self { state: Value::Value(ASSUMED_TERMINATED.to_owned()), ..Self::default() }
    }

    /// `protected`: the kernel protects the address of the wrapper.
    fn of(state: &str, snapshot: &Snapshot, protected: bool) -> Self {
        let detail = snapshot.detail.as_deref();
        let drain = detail.and_then(|detail| detail.drain.as_ref());
        let exit = detail.and_then(|detail| detail.exit).map(|exit| exit.how.to_string());
        let outcome = drain.and_then(DrainInfo::outcome_text).map(str::to_owned);
        let mut wrapper = snapshot.wrapper();
        if !protected {
            wrapper.push_str(&format!(" ({UNVERIFIED_PEER})"));
        }
        Self {
            state: Value::Value(state.to_owned()),
            exit: optional_value(exit),
            outcome: optional_value(outcome),
            receipt: Value::Null,
            wrapper: Value::Value(wrapper),
            verified_at: Value::Null,
        }
    }

    /// Whether nothing is left to do: the exit is verified, or the user confirmed it.
    pub(super) fn is_terminated(&self) -> bool {
        let states = [STOPPED, ASSUMED_TERMINATED];
        self.state.as_ref_option().is_some_and(|state| states.contains(&state.as_str()))
    }
}

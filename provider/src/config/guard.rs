//! The `guard` object: peers that must be healthy.

use grit_plugin::{
    Problems,
    schema::{AttributePath, Number, Value, number},
};

use super::{
    manager::{RunnerManagers, check_managers, required_managers},
    number::{check_whole, whole},
    object::object,
};
use crate::explain::values;

/// How many peers must be healthy, unless `guard` sets another number.
const MIN_HEALTHY: usize = 1;

object! {
    /// `guard = { peers, min_healthy }`.
    pub(crate) struct GuardArgs {
        pub(crate) peers: RunnerManagers = required_managers =>
            "Other runner managers, by key. The runner manager to drain is not a peer, and two entries for the same runner manager count as one \
             peer.", check_managers;
        pub(crate) min_healthy: Value<Number> = number => format!(
            "Minimum number of healthy peers, at most the number of peers. Default {MIN_HEALTHY}. A peer counts as healthy when its \
             wrapper reports `running`, no drain of the peer was requested, and the same apply does not drain the peer. To require a \
             level or a version, use `grit_runner_health`."
        ), check_whole(0..=1_000_000);
    }
    check: GuardArgs::check_number_of_peers;
}

impl GuardArgs {
    /// How many peers must be healthy.
    pub(crate) fn min_healthy(&self) -> usize {
        whole(&self.min_healthy).unwrap_or(MIN_HEALTHY)
    }

    fn check_number_of_peers(&self, path: &AttributePath, problems: &mut Problems) {
        if let Value::Value(peers) = &self.peers
            && !self.min_healthy.is_unknown()
            && self.min_healthy() > peers.len()
            && self.min_healthy() <= 1_000_000
        {
            let path = path.clone().attribute("min_healthy");
            problems.add(values::min_healthy(path, self.min_healthy(), MIN_HEALTHY, peers.len()));
        }
    }
}

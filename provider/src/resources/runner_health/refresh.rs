//! The refresh of a health check: it repeats the check once, within a time limit.
//!
//! A runner manager that is not healthy or unreachable is drift, not an error: plan and destroy must work while hosts are down. If a runner
//! manager cannot be checked from here (no credentials, a rejected login, a jump host that is down), its state is kept, with a warning.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::{
    call,
    schema::{AttributePath, Value},
};
use grit_ssh::{HANDSHAKES, Reachability};
use tokio::time::Instant;

use super::state::{HealthState, UNHEALTHY};
use crate::{
    client::{ClientError, Snapshot},
    config::{manager, provider_block::Configuration},
    explain::{self, health},
    fleet::{self, Unread, health::HealthPolicy},
};

/// The time limit of a refresh of up to [`HANDSHAKES`] runner managers. It also limits a plan.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);
/// Additional time for each further runner manager: its connection waits for the others.
const TIME_PER_MANAGER: Duration = Duration::from_millis(20);
/// A host that did not respond in this time is unreachable. A shorter attempt, which the end of the refresh cut off, shows nothing.
const MIN_ATTEMPT: Duration = Duration::from_secs(3);
/// Why a runner manager was not checked in time.
const LATE: &str = "not checked within the time limit of the refresh";

/// The result of a refresh for one runner manager.
enum Found {
    Healthy(Box<Snapshot>),
    /// A condition is not met.
    Unhealthy(Box<Snapshot>, String),
    /// Its host or its wrapper does not respond correctly.
    Unreachable(String),
    /// Its health is unknown.
    NotChecked(String),
}

/// Checks all runner managers of the state.
pub(super) async fn check(configuration: &Configuration, state: &HealthState) -> RefreshResult {
    let managers = manager::resolve(&state.runner_managers, configuration);
    let limit = time_limit(managers.len());
    let start = Instant::now();
    let policy = &state.policy(configuration, start, limit);
    let statuses = fleet::read_all(managers, start + limit).await;
    let found = statuses.into_iter().map(|(key, status)| {
        let found = Found::of(&key, status, policy);
        (key, found)
    });
    RefreshResult(found.collect())
}

pub(super) fn time_limit(managers: usize) -> Duration {
    let waiting = u32::try_from(managers.saturating_sub(HANDSHAKES)).unwrap_or(u32::MAX);
    REFRESH_TIMEOUT + TIME_PER_MANAGER.saturating_mul(waiting)
}

/// Whether the attempt was too short to show anything about the host.
fn is_short(error: &ClientError) -> bool {
    error.time_limit().is_some_and(|limit| limit < MIN_ATTEMPT)
}

impl Found {
    fn of(key: &str, status: Result<Snapshot, Unread>, policy: &HealthPolicy) -> Self {
        match status {
            Ok(snapshot) => of_snapshot(snapshot, policy),
            Err(Unread::Invalid(invalid)) => Self::Unreachable(invalid.to_string()),
            Err(Unread::Late) => Self::NotChecked(LATE.to_owned()),
            Err(Unread::CutOff(error)) if is_short(&error) => Self::NotChecked(LATE.to_owned()),
            Err(Unread::Failed(error) | Unread::CutOff(error)) => {
                tracing::info!(manager = key, "refresh cannot reach the wrapper: {error}");
                of_error(&error)
            }
        }
    }
}

fn of_snapshot(snapshot: Snapshot, policy: &HealthPolicy) -> Found {
    match fleet::health::missing(&snapshot, policy) {
        None => Found::Healthy(Box::new(snapshot)),
        Some(missing) => {
            let problem = health::problem(&snapshot, &missing);
            Found::Unhealthy(Box::new(snapshot), problem)
        }
    }
}

fn of_error(error: &ClientError) -> Found {
    let cause = explain::cause(error);
    match error.reachability() {
        Reachability::Absent | Reachability::Answered => Found::Unreachable(cause),
        Reachability::Refused | Reachability::Unknown => Found::NotChecked(cause),
    }
}

/// The results of a refresh, by key.
pub(super) struct RefreshResult(BTreeMap<String, Found>);

impl RefreshResult {
    /// Stores the results, and warns about runner managers that could not be checked.
    pub(super) fn into_state(self, state: &mut HealthState) {
        let mut not_checked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut unhealthy = false;
        let mut all_checked = true;
        let level_cap = state.level_cap();
        for (key, found) in self.0 {
            let problem = match &found {
                Found::Healthy(_) => None,
                Found::Unhealthy(_, problem) | Found::Unreachable(problem) => {
                    unhealthy = true;
                    Some(problem.clone())
                }
                Found::NotChecked(why) => {
                    all_checked = false;
                    not_checked.entry(why.clone()).or_default().push(key);
                    continue;
                }
            };
            if let Value::Value(managers) = &mut state.managers
                && let Some(Value::Value(evidence)) = managers.get_mut(&key)
            {
                evidence.problem = problem.map_or(Value::Null, Value::Value);
                match &found {
                    Found::Healthy(snapshot) | Found::Unhealthy(snapshot, _) => {
                        evidence.update(snapshot, level_cap);
                    }
                    Found::Unreachable(_) | Found::NotChecked(_) => {
                        evidence.state = Value::Value("unreachable".to_owned());
                    }
                }
            }
        }
        // A runner manager that could not be checked does not change the status.
        if unhealthy || all_checked {
            state.status = if unhealthy { Value::Value(UNHEALTHY.to_owned()) } else { state.healthy() };
        }
        if !not_checked.is_empty() {
            call().warn(health::not_refreshed(&not_checked).at(AttributePath::new("runner_managers")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::provider_block::ProviderArgs;

    #[test]
    fn time_limit_grows_with_waiting_connections() {
        assert_eq!(time_limit(0), REFRESH_TIMEOUT);
        assert_eq!(time_limit(HANDSHAKES), REFRESH_TIMEOUT);
        assert_eq!(time_limit(1000).as_millis(), 28_720);
    }

    #[test]
    fn only_short_attempt_at_deadline_is_cut_off() {
        let policy = HealthState::default().policy(
            &Configuration::new(ProviderArgs::default(), None, |_| None),
            Instant::now(),
            REFRESH_TIMEOUT,
        );
        let silent_for = |limit| ClientError::NoAnswer {
            method: "GetStatus",
            limit,
            route: Box::new(crate::client::example_route()),
        };
        let is_checked = |unread| !matches!(Found::of("m1", Err(unread), &policy), Found::NotChecked(_));
        let short = Duration::from_millis(500);
        assert!(is_checked(Unread::Failed(silent_for(short))), "it failed by its own timeout");
        assert!(!is_checked(Unread::CutOff(silent_for(short))));
        assert!(is_checked(Unread::CutOff(silent_for(REFRESH_TIMEOUT))));
        assert!(!is_checked(Unread::Late));
    }
}

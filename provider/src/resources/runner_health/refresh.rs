//! The refresh of a health check: it repeats the check once, within a time limit.
//!
//! A runner manager that is not healthy or unreachable is drift, not an error: plan and destroy must work while hosts are down. If a runner
//! manager cannot be checked from here (no credentials, a rejected login, a jump host that is down), its state is kept, with a warning.

use grit_ssh::{HANDSHAKES, Reachability};
use std::{collections::BTreeMap, time::Duration};

use grit_plugin::{
    call,
    schema::{AttributePath, Value},
};
use tokio::time::{Instant, timeout_at};

use super::state::{Evidence, HEALTHY, HealthState, UNHEALTHY};
use crate::{
    client::ClientError, client::Level, client::Snapshot, client::Wrapper, config::manager,
    config::provider_block::Configured, explain, explain::health, fleet, fleet::health::HealthPolicy,
    log_key,
};

/// The time limit of a refresh of up to [`HANDSHAKES`] runner managers. It also limits a plan.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);
/// Additional time for each further runner manager: its connection waits for the others.
const TIME_PER_MANAGER: Duration = Duration::from_millis(20);
/// A host that did not respond in this time is unreachable. A shorter attempt, which the end of the refresh cut off, shows nothing.
const MIN_ATTEMPT: Duration = Duration::from_secs(3);
/// Time for a check to report its error after the time limit.
const ERROR_GRACE: Duration = Duration::from_secs(1);
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
pub(super) async fn check(known: &Configured, state: &HealthState) -> RefreshResult {
    let managers = manager::known(&state.runner_managers);
    let limit = time_limit(managers.len());
    let deadline = Instant::now() + limit;
    let policy = &state.policy(known, Instant::now(), limit);
    let found = fleet::for_each(managers, |key, manager| async move {
        let client = match manager.client(&key, known) {
            Ok(client) => client.until(deadline),
            Err(error) => return Found::Unreachable(error.to_string()),
        };
        match timeout_at(deadline + ERROR_GRACE, client.read_status()).await {
            Ok(Ok(snapshot)) => of_snapshot(snapshot, policy),
            Ok(Err(error)) if was_cut_off(&error, deadline) => Found::NotChecked(LATE.to_owned()),
            Ok(Err(error)) => {
                tracing::info!({ log_key::MANAGER } = key, "refresh cannot reach the wrapper: {error}");
                of_error(&error)
            }
            Err(_) => Found::NotChecked(LATE.to_owned()),
        }
    });
    RefreshResult(found.await)
}

pub(super) fn time_limit(managers: usize) -> Duration {
    let waiting = u32::try_from(managers.saturating_sub(HANDSHAKES)).unwrap_or(u32::MAX);
    REFRESH_TIMEOUT + TIME_PER_MANAGER.saturating_mul(waiting)
}

/// Whether the attempt was too short to show anything about the host.
fn was_cut_off(error: &ClientError, deadline: Instant) -> bool {
    Instant::now() >= deadline && error.time_limit().is_some_and(|limit| limit < MIN_ATTEMPT)
}

fn of_snapshot(snapshot: Snapshot, policy: &HealthPolicy) -> Found {
    match fleet::health::missing(&snapshot, policy) {
        Ok(None) => Found::Healthy(Box::new(snapshot)),
        Ok(Some(missing)) => {
            let problem = health::problem(&snapshot, &missing);
            Found::Unhealthy(Box::new(snapshot), problem)
        }
        Err(wanted) => {
            let problem = format!(
                "the host now runs upstream's `gitlab-runner wrapper`, which does not support `{wanted}`"
            );
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
            state.status = Value::Value(if unhealthy { UNHEALTHY } else { HEALTHY }.to_owned());
        }
        if !not_checked.is_empty() {
            call().warn(health::not_refreshed(&not_checked).at(AttributePath::new("runner_managers")));
        }
    }
}

impl Evidence {
    /// Takes over the present values. The numbers of jobs and `verified_at` stay: they belong to the verification.
    fn update(&mut self, snapshot: &Snapshot, level_cap: Level) {
        let (jobs, jobs_succeeded) = (self.jobs, self.jobs_succeeded);
        let (verified_at, problem) =
            (std::mem::take(&mut self.verified_at), std::mem::take(&mut self.problem));
        let found = Self::new(snapshot, level_cap, time::OffsetDateTime::UNIX_EPOCH);
        *self = Self { jobs, jobs_succeeded, verified_at, problem, ..found };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_grows_with_waiting_connections() {
        assert_eq!(time_limit(0), REFRESH_TIMEOUT);
        assert_eq!(time_limit(HANDSHAKES), REFRESH_TIMEOUT);
        assert_eq!(time_limit(1000).as_millis(), 28_720);
    }

    #[tokio::test(start_paused = true)]
    async fn only_short_attempt_at_the_deadline_is_cut_off() {
        let silent_for = |limit| ClientError::NoAnswer {
            method: "GetStatus",
            limit,
            route: Box::new(crate::client::example_route()),
        };
        let (short, deadline) = (Duration::from_millis(500), Instant::now() + REFRESH_TIMEOUT);
        assert!(!was_cut_off(&silent_for(short), deadline), "it failed by its own timeout");
        tokio::time::sleep(REFRESH_TIMEOUT).await;
        assert!(was_cut_off(&silent_for(short), deadline));
        assert!(!was_cut_off(&silent_for(REFRESH_TIMEOUT), deadline));
    }
}

//! What a refresh does: it proves again what was demanded, within a bound.
//!
//! A manager that is not healthy, or whose host is not reachable, is drift and never an error: plan and destroy must work while hosts are
//! down. Where a manager could not be looked at from here (no credentials, a refused login, a jump host that is down), nothing is known
//! about it: the state stays, and one warning says why.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::state::{Evidence, HEALTHY, HealthState, UNHEALTHY};
use crate::{
    client::{ClientError, Snapshot, Wrapper},
    explain::{self, health},
    fleet::{self, health::HealthPolicy},
    process::Configured,
    schema::{AttributePath, Diagnostics, Value},
    transport::Reachability,
};

/// How long a refresh looks at all managers together. It bounds a plan, too.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);
/// What a look may take after the limit to say why it failed.
const ERROR_GRACE: Duration = Duration::from_secs(1);

/// What a refresh found of one manager.
enum Found {
    Healthy(Box<Snapshot>),
    /// It answers, and lacks something.
    Unhealthy(Box<Snapshot>, String),
    /// Its host or its wrapper does not answer as it should.
    Unreachable(String),
    /// Nothing is known about it.
    NotChecked(String),
}

/// Looks at all managers of the state.
pub(super) async fn check(known: &Configured, state: &HealthState) -> RefreshResult {
    let deadline = Instant::now() + REFRESH_TIMEOUT;
    let policy = &state.policy(known, Instant::now(), REFRESH_TIMEOUT);
    let found = fleet::for_each(state.known_managers(), |key, manager| async move {
        let client = match known.client(&key, &manager) {
            Ok(client) => client.until(deadline),
            Err(error) => return Found::Unreachable(error.to_string()),
        };
        match timeout_at(deadline + ERROR_GRACE, client.read_status()).await {
            Ok(Ok(snapshot)) => of_snapshot(snapshot, policy),
            Ok(Err(error)) => {
                tracing::info!(manager = key, "refresh cannot reach the wrapper: {error}");
                of_error(&error)
            }
            Err(_) => Found::NotChecked("not checked within the time limit of the refresh".to_owned()),
        }
    });
    RefreshResult(found.await)
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

/// What a refresh found, by manager.
pub(super) struct RefreshResult(BTreeMap<String, Found>);

impl RefreshResult {
    /// Takes over what was found, and warns of what could not be looked at.
    pub(super) fn into_state(self, state: &mut HealthState, diags: &mut Diagnostics) {
        let mut not_checked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut unhealthy = false;
        let mut all_checked = true;
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
                    Found::Healthy(snapshot) | Found::Unhealthy(snapshot, _) => evidence.update(snapshot),
                    Found::Unreachable(_) | Found::NotChecked(_) => {
                        evidence.state = Value::Value("unreachable".to_owned());
                    }
                }
            }
        }
        // Unknown is neither: a manager that could not be looked at keeps the status as it was, unless another one is not healthy.
        if unhealthy || all_checked {
            state.status = Value::Value(if unhealthy { UNHEALTHY } else { HEALTHY }.to_owned());
        }
        if !not_checked.is_empty() {
            health::not_refreshed(&not_checked).warning(AttributePath::new("runner_managers"), diags);
        }
    }
}

impl Evidence {
    /// Takes over what is seen now. `jobs` and `verified_at` stay: they belong to the proof.
    fn update(&mut self, snapshot: &Snapshot) {
        let (jobs, verified_at) = (self.jobs, std::mem::take(&mut self.verified_at));
        let problem = std::mem::take(&mut self.problem);
        let seen = Self::new(snapshot, time::OffsetDateTime::UNIX_EPOCH);
        *self = Self { jobs, verified_at, problem, ..seen };
    }
}

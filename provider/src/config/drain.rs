//! The options of a drain, which `grit_runner_drain` and `grit_runner_shutdown` have in common.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::{
    Problems, attribute_map,
    schema::{AttributePath, Attributes, Number, Value, number, object, required_text, secret_map, text},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    enum_attribute::{self, EnumAttribute, member},
    manager::{self, RunnerManagers, required_managers},
    number::{check_whole, whole},
    provider_block::Configuration,
    retry::RetryArgs,
    text::check_set,
};
use crate::{
    client::{DrainRequest, MAX_DRAIN_ID, MAX_REASON, ShutdownCallback},
    duration::human,
    explain::values,
    fleet::{
        PEER_ATTEMPTS, PEER_LIMIT,
        drain::{DrainPolicy, FORCE_LIMIT, Mode, OnTimeout, OnUnreachable, Until},
        draining::Guard,
        receipt::OnLostJobs,
    },
};

/// The timeout of a drain, unless `timeouts` sets another.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(3 * 3600);

/// Attempts before a host that was never reached counts as unreachable: about 90 s with the default delays. The host has been running for
/// long, so a longer wait would only hide that it is gone.
pub(crate) const DRAIN_ATTEMPTS: u32 = 12;

/// Whether an operation with the attribute `wait` waits for the exit of the runners.
pub(crate) const WAIT: bool = true;

/// How many peers must be healthy, unless `guard` sets another number.
const MIN_HEALTHY: usize = 1;

/// The method of a callback, unless `shutdown_callback` sets another.
const CALLBACK_METHOD: &str = "POST";

/// `guard = { peers, min_healthy }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GuardArgs {
    pub(crate) peers: RunnerManagers,
    pub(crate) min_healthy: Value<Number>,
}

/// `shutdown_callback = { url, method, headers }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallbackArgs {
    pub(crate) url: Value<String>,
    pub(crate) method: Value<String>,
    pub(crate) headers: Value<BTreeMap<String, Value<String>>>,
}

/// The options of one resource.
#[derive(Clone, Copy)]
pub(crate) struct DrainOptions<'a> {
    pub(crate) mode: &'a Value<String>,
    pub(crate) on_timeout: &'a Value<String>,
    pub(crate) on_unreachable: &'a Value<String>,
    pub(crate) on_lost_jobs: &'a Value<String>,
    pub(crate) guard: &'a Value<GuardArgs>,
    pub(crate) shutdown_callback: &'a Value<CallbackArgs>,
    pub(crate) reason: &'a Value<String>,
    pub(crate) retry: &'a Value<RetryArgs>,
}

impl EnumAttribute for Mode {
    const VALUES: &'static [(Self, &'static str)] =
        &[(Self::Graceful, "graceful"), (Self::Forceful, "forceful")];
}

impl EnumAttribute for OnTimeout {
    const VALUES: &'static [(Self, &'static str)] = &[(Self::Fail, "fail"), (Self::Force, "force")];
}

impl EnumAttribute for OnUnreachable {
    const VALUES: &'static [(Self, &'static str)] =
        &[(Self::Fail, "fail"), (Self::AssumeTerminated, "assume_terminated")];
}

impl EnumAttribute for OnLostJobs {
    const VALUES: &'static [(Self, &'static str)] = &[(Self::Warn, "warn"), (Self::Retry, "retry")];
}

impl DrainOptions<'_> {
    /// The settings of one drain. `start` is the time at which the operation began. `gone`: the user has named the instance as terminated, for this
    /// run.
    pub(crate) fn policy(
        &self,
        configuration: &Configuration,
        id: &str,
        start: Instant,
        timeout: Duration,
        gone: bool,
    ) -> DrainPolicy {
        DrainPolicy {
            mode: member(self.mode),
            until: Until::Exit,
            start,
            timeout,
            on_timeout: member(self.on_timeout),
            on_unreachable: if gone { OnUnreachable::Confirmed } else { member(self.on_unreachable) },
            on_lost_jobs: member(self.on_lost_jobs),
            request: self.request(id, configuration.job_url.clone()),
            retry: configuration.retry(self.retry.as_ref_option(), Some(DRAIN_ATTEMPTS)),
        }
    }

    /// The peers that must be healthy before the drain.
    pub(crate) fn guard(&self, configuration: &Configuration) -> Option<Guard> {
        let guard = self.guard.as_ref_option()?;
        let peers = manager::resolve(&guard.peers, configuration).into_iter();
        let peers = peers.map(|(key, peer)| (key, peer.map(|peer| (peer.identity.clone(), peer.client()))));
        let retry = configuration.retry(self.retry.as_ref_option(), None);
        Some(Guard { peers: peers.collect(), min_healthy: guard.min_healthy(), retry })
    }

    /// The same `id` again is the same drain.
    fn request(&self, id: &str, job_url: String) -> DrainRequest {
        DrainRequest {
            id: shortened(id),
            // A reason that became known only in the apply was not refused.
            reason: self.reason.as_ref_option().map_or("", String::as_str).chars().take(MAX_REASON).collect(),
            forceful: false,
            callback: self.shutdown_callback.as_ref_option().and_then(CallbackArgs::callback),
            job_url,
        }
    }

    pub(crate) fn check(&self, problems: &mut Problems) {
        enum_attribute::check::<Mode>(self.mode, AttributePath::new("mode"), problems);
        enum_attribute::check::<OnTimeout>(self.on_timeout, AttributePath::new("on_timeout"), problems);
        enum_attribute::check::<OnUnreachable>(
            self.on_unreachable,
            AttributePath::new("on_unreachable"),
            problems,
        );
        enum_attribute::check::<OnLostJobs>(self.on_lost_jobs, AttributePath::new("on_lost_jobs"), problems);
        if let Value::Value(guard) = self.guard {
            guard.check(&AttributePath::new("guard"), problems);
        }
        if let Value::Value(callback) = self.shutdown_callback {
            callback.check(&AttributePath::new("shutdown_callback"), problems);
        }
        if let Value::Value(reason) = self.reason
            && reason.chars().count() > MAX_REASON
        {
            problems.add(values::too_long(AttributePath::new("reason"), reason.chars().count(), MAX_REASON));
        }
        RetryArgs::check(self.retry, problems);
    }
}

/// An id that the wrapper accepts. It ends as this one, so that it stays unique.
pub(crate) fn shortened(id: &str) -> String {
    const END: usize = 50;
    let length = id.chars().count();
    if length <= MAX_DRAIN_ID {
        return id.to_owned();
    }
    id.chars().take(MAX_DRAIN_ID - END).chain(id.chars().skip(length - END)).collect()
}

impl GuardArgs {
    /// How many peers must be healthy.
    pub(crate) fn min_healthy(&self) -> usize {
        whole(&self.min_healthy).unwrap_or(MIN_HEALTHY)
    }

    fn check(&self, path: &AttributePath, problems: &mut Problems) {
        let at = |name: &'static str| path.clone().attribute(name);
        manager::check_all(&self.peers, &at("peers"), problems);
        check_whole(&self.min_healthy, 0..=1_000_000, at("min_healthy"), problems);
        if let Value::Value(peers) = &self.peers
            && !self.min_healthy.is_unknown()
            && self.min_healthy() > peers.len()
            && self.min_healthy() <= 1_000_000
        {
            let (path, wanted, there) = (at("min_healthy"), self.min_healthy(), peers.len());
            problems.add(values::min_healthy(path, wanted, MIN_HEALTHY, there));
        }
    }
}

impl CallbackArgs {
    /// Refuses values that the wrapper would refuse in a request.
    fn check(&self, path: &AttributePath, problems: &mut Problems) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_set(&self.url, at("url"), problems);
        if let Value::Value(url) = &self.url
            && !is_http_url(url)
        {
            problems.add(values::url(at("url")));
        }
        if let Value::Value(method) = &self.method
            && http::Method::from_bytes(method.as_bytes()).is_err()
        {
            problems.add(values::http_method(at("method"), method));
        }
        for (name, value) in self.headers.iter().flatten() {
            let path = at("headers").key(name.clone());
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                problems.add(values::http_header_name(path.clone(), name));
            }
            match value {
                Value::Value(value) if http::HeaderValue::from_str(value).is_err() => {
                    problems.add(values::http_header_value(path));
                }
                value => check_set(value, path, problems),
            }
        }
    }

    fn callback(&self) -> Option<ShutdownCallback> {
        let headers = self.headers.iter().flatten();
        Some(ShutdownCallback {
            url: self.url.as_ref_option()?.clone(),
            method: self.method.as_ref_option().map_or(CALLBACK_METHOD, String::as_str).to_owned(),
            headers: headers
                .filter_map(|(name, value)| Some((name.clone(), value.as_ref_option()?.clone())))
                .collect(),
        })
    }
}

fn is_http_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

pub(crate) fn option_attributes() -> Attributes {
    let guard = attribute_map! {
        peers: required_managers =>
            "Other runner managers, by key. The runner manager to drain does not count, and two keys of one runner manager count \
             once.",
        min_healthy: number => &format!(
            "Minimum number of healthy peers. Default {MIN_HEALTHY}. It must not exceed the number of peers. A peer counts as healthy \
             when its wrapper reports `running`, no drain of the peer was requested, and the same apply does not drain it. To require \
             a level or a version, use `grit_runner_health`."
        ),
    };
    let callback = attribute_map! {
        url: required_text =>
            "URL that the wrapper sends the request to. grit-wrapper refuses a loopback, link-local or metadata address unless its flag \
             `--allow-callback` names the URL.",
        method: text => &format!("Any HTTP method. Default `{CALLBACK_METHOD}`."),
        headers: secret_map => "HTTP headers. **A resource stores them in the state.**",
    };
    attribute_map! {
        mode: text => &format!("Kind of shutdown: {}. `forceful` aborts the running jobs.", Mode::choices()),
        on_timeout: text => &format!(
            "Action when the runner has not exited in time: {}. `force` aborts the remaining jobs, and waits \
             at most `{}` more, in addition to the timeout, or longer if the runner has a longer `shutdown_timeout`.",
            OnTimeout::choices(),
            human(FORCE_LIMIT)
        ),
        on_unreachable: text => &format!(
            "Action when the host is unreachable before the shutdown was requested: {}. `assume_terminated` treats a host as terminated if \
             nothing responds at its address: jobs that are still running there are lost. It needs a direct connection, without jump host and \
             command. `GRIT_ASSUME_TERMINATED` names an instance for one run, with any connection.",
            OnUnreachable::choices()
        ),
        on_lost_jobs: text => &format!(
            "Action when GitLab still lists running jobs of the runner manager after its runner has exited: {}. `retry` cancels each such job \
             that has no log, and retries it. It needs the `gitlab` object of the provider block with a token that has the scope `api` and the \
             role Developer in the projects of the jobs.",
            OnLostJobs::choices()
        ),
        guard: object(guard) => "Refuse to drain while too few other runner managers are healthy.",
        shutdown_callback: object(callback) =>
            "HTTP request that the wrapper sends after the runner process has exited. The wrapper sends it also when another client \
             started the shutdown, or when the runner had already exited. Upstream's wrapper accepts a callback only with the first \
             shutdown request; otherwise a warning reports this.",
        reason: text => &format!(
            "Reason of the drain, at most {MAX_REASON} characters. It is shown in Terraform's log and in the status of the wrapper."
        ),
        retry: object(RetryArgs::attributes(&DRAIN_ATTEMPTS.to_string())) => &format!(
            "Retries of failed connections before the shutdown was requested. After that, lost connections are retried until the \
             timeout. The check of a peer takes at most `{}`, with {PEER_ATTEMPTS} attempts by default.",
            human(PEER_LIMIT)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_drain_id_is_shortened_and_stays_unique() {
        let id = |suffix: &str| format!("{}@10.0.0.1#{suffix}", "ä".repeat(300));
        let (one, other) = (shortened(&id("11111111")), shortened(&id("22222222")));
        assert_eq!(one.chars().count(), MAX_DRAIN_ID);
        assert!(one != other && one.ends_with("@10.0.0.1#11111111"), "{one}");
        assert_eq!(shortened("blue@10.0.0.1#11111111"), "blue@10.0.0.1#11111111");
    }
}

//! The options of a drain, which `grit_runner_drain` and `grit_runner_shutdown` have in common.

use std::time::Duration;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value, object, text},
};
use tokio::time::Instant;

use super::{
    enum_attribute::{EnumAttribute, check_member, member},
    object::{check_object, object},
    provider_block::Configuration,
    retry::RetryArgs,
};
use crate::{
    client::{DrainRequest, MAX_DRAIN_ID, MAX_REASON},
    duration::human,
    explain::values,
    fleet::{
        drain::{DrainPolicy, FORCE_LIMIT, Mode, OnTimeout, OnUnreachable, Until},
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

object! {
    /// The options of one drain.
    pub(crate) struct DrainOptions {
        pub(crate) mode: Value<String> = text =>
            format!("Kind of shutdown: {}. `forceful` aborts the running jobs.", Mode::choices()), check_member::<Mode>;
        pub(crate) on_timeout: Value<String> = text => format!(
            "Action when the runner has not exited in time: {}. `force` aborts the remaining jobs, and waits up to `{}` after the \
             timeout; longer if the runner has a longer `shutdown_timeout`.",
            OnTimeout::choices(),
            human(FORCE_LIMIT)
        ), check_member::<OnTimeout>;
        pub(crate) on_unreachable: Value<String> = text => format!(
            "Action when the host is unreachable before the shutdown is requested: {}. `assume_terminated` treats a host as terminated \
             if nothing responds at its address, and the same run has reached another host: jobs that are still running on this host are \
             lost. `assume_terminated` has no effect with `proxy_jump`, `proxy_command` or `ssh_command`. To treat one instance as terminated in one run, set the variable \
             `GRIT_ASSUME_TERMINATED`: it works with every connection.",
            OnUnreachable::choices()
        ), check_member::<OnUnreachable>;
        pub(crate) on_lost_jobs: Value<String> = text => format!(
            "Action when GitLab still lists running jobs of the runner manager after its runner has exited: {}. `retry` cancels and \
             retries each such job that has no log. `retry` requires a token in `gitlab` of the provider block, with the scope `api` and \
             the role Developer in the projects of the jobs.",
            OnLostJobs::choices()
        ), check_member::<OnLostJobs>;
        pub(crate) reason: Value<String> = text => format!(
            "Reason for the drain, at most {MAX_REASON} characters. Terraform's log and the status of the wrapper show the reason."
        ), check_reason;
        pub(crate) retry: Value<RetryArgs> = object(RetryArgs::attributes(&DRAIN_ATTEMPTS.to_string())) =>
            "Retries of failed connections before the shutdown is requested. After the request, lost connections are retried until \
             the timeout.", check_object;
    }
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

impl DrainOptions {
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
            mode: member(&self.mode),
            until: Until::Exit,
            start,
            timeout,
            on_timeout: member(&self.on_timeout),
            on_unreachable: if gone { OnUnreachable::Confirmed } else { member(&self.on_unreachable) },
            on_lost_jobs: member(&self.on_lost_jobs),
            request: self.request(id, configuration.job_url.clone()),
            retry: configuration.retry(self.retry.as_ref_option(), Some(DRAIN_ATTEMPTS)),
        }
    }

    /// The same `id` again is the same drain.
    fn request(&self, id: &str, job_url: String) -> DrainRequest {
        DrainRequest {
            id: shortened(id),
            // A reason that became known only in the apply was not refused.
            reason: self.reason.as_ref_option().map_or("", String::as_str).chars().take(MAX_REASON).collect(),
            forceful: false,
            job_url,
        }
    }
}

pub(crate) fn check_reason(reason: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(reason) = reason
        && reason.chars().count() > MAX_REASON
    {
        problems.add(values::too_long(path.clone(), reason.chars().count(), MAX_REASON));
    }
}

/// An id that the wrapper accepts. It ends as this one, so that it stays unique.
fn shortened(id: &str) -> String {
    const END: usize = 50;
    let length = id.chars().count();
    if length <= MAX_DRAIN_ID {
        return id.to_owned();
    }
    id.chars().take(MAX_DRAIN_ID - END).chain(id.chars().skip(length - END)).collect()
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

//! Limits of what a wrapper reports. A hostile host fills a response with texts, which would be in errors, logs and the state.

use grit_proto::wrapper_v1 as v1;
use grit_ssh::host_text::{MAX_TEXT, shortened};

/// The maximum size of a response. The longest status of grit-wrapper has less than 64 KiB, with any number of jobs; the rest is for fields of
/// later releases. A response of tiny texts needs about ten times its size in memory.
pub(super) const MAX_MESSAGE: usize = 128 << 10;

/// For the reason of an exit, which can end with ten lines of the runner's log. Lines have 300 characters.
const MAX_FAILURE: usize = 4 << 10;

/// For a name, a version or an identifier that grit-wrapper creates. It sends at most 200 bytes of the names of others.
const MAX_NAME: usize = 256;

/// For reasons, which are read by people. grit-wrapper sends as many, and then their number.
const MAX_REASONS: usize = 20;

/// For GitLab instances and the runners at each of them. grit-wrapper sends no more.
const MAX_REGISTRATIONS: usize = 20;
const MAX_RUNNER_IDS: usize = 1000;

/// For the system id of a runner manager, which becomes a part of a URL.
const MAX_SYSTEM_ID: usize = 64;

/// The status with shortened texts and lists. Fields that the provider does not read are not shortened.
pub(super) fn status(mut status: v1::Status) -> v1::Status {
    shorten(&mut status.failure_reason, MAX_FAILURE);
    shorten(&mut status.wrapper_version, MAX_NAME);
    shorten(&mut status.process, MAX_NAME);
    shorten(&mut status.boot_id, MAX_NAME);
    for drain in status.drain.iter_mut().chain(&mut status.last_drain) {
        // An identifier of a client: up to 200 characters.
        shorten(&mut drain.id, MAX_TEXT);
        shorten(&mut drain.reason, MAX_TEXT);
        shorten(&mut drain.requested_by, MAX_TEXT);
        shorten(&mut drain.waits_for, MAX_TEXT);
    }
    if let Some(cancelled) = &mut status.cancelled_drain {
        shorten(&mut cancelled.id, MAX_TEXT);
        shorten(&mut cancelled.cancelled_by, MAX_TEXT);
    }
    status.registrations.truncate(MAX_REGISTRATIONS);
    for registration in &mut status.registrations {
        shorten(&mut registration.url, MAX_NAME);
        registration.system_id.take_if(|id| !is_system_id(id));
        registration.runner_ids.truncate(MAX_RUNNER_IDS);
        registration.runner_ids.shrink_to_fit();
    }
    if let Some(health) = &mut status.health {
        let names = [health.runner_version.as_mut(), health.oldest_job.as_mut().map(|job| &mut job.stage)];
        names.into_iter().flatten().for_each(|name| shorten(name, MAX_NAME));
        if let Some(others @ 2..) = health.reasons.len().checked_sub(MAX_REASONS) {
            keep(&mut health.reasons, MAX_REASONS);
            health.reasons.push(format!("and {others} more"));
        }
        health.reasons.iter_mut().for_each(|reason| shorten(reason, MAX_TEXT));
    }
    status
}

fn is_system_id(id: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_SYSTEM_ID).contains(&id.len()) && id.bytes().all(is_part)
}

pub(super) fn failure_reason(reason: String) -> String {
    shortened(reason, MAX_FAILURE)
}

fn shorten(text: &mut String, limit: usize) {
    *text = shortened(std::mem::take(text), limit);
}

/// Keeps the first texts, and frees the memory of the others.
fn keep(texts: &mut Vec<String>, limit: usize) {
    texts.truncate(limit);
    texts.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// The longest texts and lists of grit-wrapper, except those that only an attacker needs.
    #[test]
    fn status_of_grit_wrapper_is_not_shortened() {
        let line = format!("\n  {}", "x".repeat(300));
        let mut reasons = vec!["r".repeat(500); 20];
        reasons.push("and 980 more".to_owned());
        let health = v1::Health {
            reasons,
            runner_version: Some("v".repeat(200)),
            oldest_job: Some(v1::OldestJob { age: None, stage: "s".repeat(200) }),
            ..v1::Health::default()
        };
        let drain = v1::Drain { id: "i".repeat(200), reason: "r".repeat(1000), ..v1::Drain::default() };
        let full = v1::Status {
            failure_reason: format!("exit status 1\nThe last lines of the runner's log:{}", line.repeat(10)),
            health: Some(health),
            registrations: vec![
                v1::Registration {
                    url: "u".repeat(200),
                    system_id: Some("s_0123456789ab".to_owned()),
                    runner_ids: vec![u64::MAX >> 8; 50],
                    sections_without_id: 7,
                };
                20
            ],
            cancelled_drain: Some(v1::CancelledDrain {
                id: "i".repeat(200),
                cancelled_by: "uid 1000 (deploy), unix socket".to_owned(),
                cancelled_at: None,
            }),
            drain: Some(drain.clone()),
            last_drain: Some(drain),
            ..v1::Status::default()
        };
        assert_eq!(status(full.clone()), full);
        for id in ["", "a/b", "a&page=2", "é", &"x".repeat(65)] {
            let registration = v1::Registration { system_id: Some(id.to_owned()), ..Default::default() };
            let limited = status(v1::Status { registrations: vec![registration], ..v1::Status::default() });
            assert_eq!(limited.registrations[0].system_id, None, "{id}");
        }
        assert!(full.encoded_len() * 2 < MAX_MESSAGE);
    }
}

//! Texts for the receipt of a drain.

use grit_plugin::Problem;
use grit_ssh::host_text::{MAX_TEXT, shortened};

use super::{code::Code, phrases::append};
use crate::{
    fleet::receipt::{Fate, MAX_QUESTIONS, NoReceipt, NotCancelled, Receipt},
    gitlab::{GitlabError, Job},
};

/// The evidence of a drain that has lost no job.
pub(crate) const EMPTY: &str = "GitLab lists no running job of this manager";

/// Jobs that a warning names.
const MAX_JOBS: usize = 50;

/// The receipt as evidence; `None` without an answer of GitLab.
pub(crate) fn text(receipt: &Receipt) -> Option<String> {
    match receipt.lost.len() {
        0 if receipt.is_empty_list() => Some(EMPTY.to_owned()),
        0 => None,
        jobs => Some(format!("GitLab lists {} of this manager", running(jobs))),
    }
}

/// None if GitLab lists no running job.
pub(crate) fn warnings(manager: &str, receipt: &Receipt) -> Vec<Problem> {
    let lost = (!receipt.lost.is_empty()).then(|| lost(manager, &receipt.lost));
    lost.into_iter().chain(receipt.missing.iter().map(|why| no_receipt(manager, why))).collect()
}

fn running(jobs: usize) -> String {
    if jobs == 1 { "1 running job".to_owned() } else { format!("{jobs} running jobs") }
}

type IsIt = fn(&Fate) -> bool;

/// The next step for the jobs of a kind.
const STEPS: [(IsIt, &str); 6] = [
    (
        |fate| matches!(fate, Fate::Kept),
        "Cancel and retry these jobs in GitLab. With `on_lost_jobs = \"retry\"`, the provider does this.",
    ),
    (
        |fate| matches!(fate, Fate::NotCancelled(NotCancelled::HasLog)),
        "Check the jobs that have a log: another runner process on the same host may be running them. If the log of a job does not grow, cancel and \
         retry the job.",
    ),
    (
        |fate| matches!(fate, Fate::NotCancelled(NotCancelled::New)),
        "Check the jobs that GitLab has listed for a short time: another runner process on the same host may have received them. If the log of a \
         job stays empty, cancel and retry the job.",
    ),
    (
        |fate| matches!(fate, Fate::NotCancelled(NotCancelled::InContact)),
        "Check the runner managers of this runner in GitLab: another runner process may have the same system id, or the host reports the ids of \
         another manager. If a job does not run there, cancel and retry the job.",
    ),
    (
        |fate| {
            matches!(
                fate,
                Fate::NotCancelled(
                    NotCancelled::NoAnswer
                        | NotCancelled::NoTime
                        | NotCancelled::Interrupted
                        | NotCancelled::Failed(_)
                )
            )
        },
        "Cancel and retry the jobs that were not cancelled, if they still run.",
    ),
    (
        |fate| matches!(fate, Fate::NotQueued(_) | Fate::MayBeCancelled(_)),
        "Retry the jobs in GitLab that are cancelled and were not queued again.",
    ),
];

fn lost(manager: &str, jobs: &[(Job, Fate)]) -> Problem {
    let lines = jobs.iter().take(MAX_JOBS).map(|(job, fate)| format!("- {}{}", name(job), became(fate)));
    let mut lines: Vec<_> = lines.collect();
    if let Some(others @ 1..) = jobs.len().checked_sub(MAX_JOBS) {
        lines.push(format!("- and {others} more"));
    }
    let mut next_step = String::new();
    for (is_it, step) in STEPS {
        if jobs.iter().any(|(_, fate)| is_it(fate)) {
            append(&mut next_step, step);
        }
    }
    Problem::new(
        Code::JobsLost,
        format!("Jobs of {manager} were lost"),
        format!(
            "The runner of runner manager {manager:?} has exited, but the last answer of GitLab lists {}:\n\n{}",
            running(jobs.len()),
            lines.join("\n")
        ),
        next_step,
    )
}

/// The URL of a job, or its number.
fn name(job: &Job) -> String {
    if job.url.is_empty() { format!("job {}", job.id) } else { shortened(job.url.clone(), MAX_TEXT) }
}

fn became(fate: &Fate) -> String {
    match fate {
        Fate::Kept => String::new(),
        Fate::Retried(url) => {
            format!(": was cancelled, and queued again as {}", shortened(url.clone(), MAX_TEXT))
        }
        Fate::NotCancelled(why) => format!(": was not cancelled{}", not_cancelled(why)),
        Fate::MayBeCancelled(error) => {
            format!(": may have been cancelled, and was not queued again: {error}")
        }
        Fate::NotQueued(error) => {
            format!(": was cancelled, but GitLab did not confirm that it is queued again: {error}")
        }
    }
}

fn not_cancelled(why: &NotCancelled) -> String {
    match why {
        NotCancelled::HasLog => ", because it has a log".to_owned(),
        NotCancelled::New => ", because GitLab has listed it for a short time".to_owned(),
        NotCancelled::InContact => {
            ", because GitLab may have received a request of its runner manager since the exit of the runner"
                .to_owned()
        }
        NotCancelled::Ended(status) => {
            format!(", because it had ended ({})", shortened(status.clone(), MAX_TEXT))
        }
        NotCancelled::NoAnswer => ", because a request to GitLab failed".to_owned(),
        NotCancelled::NoTime => ", because the time limit was reached".to_owned(),
        NotCancelled::Interrupted => ", because the wait was cancelled".to_owned(),
        NotCancelled::Failed(error) => format!(": {error}"),
    }
}

fn no_receipt(manager: &str, why: &NoReceipt) -> Problem {
    let (code, why, next_step) = cause(why);
    Problem::new(
        code,
        format!("Jobs of {manager} were not checked in GitLab"),
        format!(
            "The runner of runner manager {manager:?} has exited, but GitLab has not confirmed that no job was lost: {why}."
        ),
        next_step,
    )
}

/// Warns about healthy runner managers that GitLab could not confirm: the key and the cause of each.
pub(crate) fn unconfirmed(managers: &[(&str, &NoReceipt)]) -> Problem {
    let lines: Vec<_> =
        managers.iter().map(|(manager, why)| format!("- {manager}: {}.", cause(why).1)).collect();
    Problem::new(
        Code::Notice,
        "Runner managers were not checked in GitLab",
        format!(
            "These runner managers are healthy for their wrappers, but it is unknown whether GitLab gives them jobs:\n\n{}",
            lines.join("\n")
        ),
        "Check in GitLab that their runners are not paused.",
    )
}

/// Why GitLab could not be asked, as a clause, and the next step.
fn cause(why: &NoReceipt) -> (Code, String, &'static str) {
    match why {
        NoReceipt::NoToken => (
            Code::InvalidConfig,
            "the provider block has a `gitlab` object without a token".to_owned(),
            "Set `gitlab.token` or `GRIT_GITLAB_TOKEN`, or remove the `gitlab` object.",
        ),
        NoReceipt::Invalid(attribute) => (
            Code::InvalidConfig,
            format!("`gitlab.{attribute}` of the provider block is invalid"),
            "Correct its value.",
        ),
        NoReceipt::Upstream => (
            Code::WrapperError,
            "the host runs upstream's `gitlab-runner wrapper`, which does not report where its runner is registered".to_owned(),
            "Run grit-wrapper on the host, or check the running jobs of the runner manager in GitLab.",
        ),
        NoReceipt::NotRegistered => (
            Code::WrapperError,
            "the wrapper does not report where its runner is registered: the wrapper is older than the provider, or cannot read the \
             configuration of the runner"
                .to_owned(),
            "Check the running jobs of the runner manager in GitLab. Use a newer grit-wrapper on new hosts.",
        ),
        NoReceipt::OtherInstance { url, instance } => (
            Code::InvalidConfig,
            format!(
                "the runner is registered at {url:?}, but the provider sends the token only to {instance} (`gitlab.url`)"
            ),
            "If this is your GitLab instance, set `gitlab.url`. Use a separate provider block for the runners of each GitLab instance.",
        ),
        NoReceipt::NoId { sections } => (
            Code::WrapperError,
            format!(
                "the configuration of the runner has no `id` in {}",
                if *sections == 1 { "1 section".to_owned() } else { format!("{sections} sections") }
            ),
            "Set `id` in each `[[runners]]` section of `config.toml` (the page of the runner in GitLab shows the id; `gitlab-runner register` \
             writes it).",
        ),
        NoReceipt::NoSystemId => (
            Code::WrapperError,
            "the wrapper cannot read `.runner_system_id` in the directory of the runner's configuration".to_owned(),
            "Give the user that runs the wrapper read permission for this file.",
        ),
        NoReceipt::TooManyIds { ids } => (
            Code::WrapperError,
            format!("the host reports {ids} registrations, and the provider asks for at most {MAX_QUESTIONS}"),
            "Check the configuration of the runner, and the running jobs of the runner manager in GitLab.",
        ),
        NoReceipt::NoManagers => (
            Code::WrapperError,
            "this GitLab is too old to list the managers of a runner".to_owned(),
            "Update GitLab.",
        ),
        NoReceipt::NoFreeSlot { runner } => (
            Code::WrapperError,
            format!("all job slots (`concurrent`) are in use, and GitLab has not heard of the section of runner {runner}"),
            "Check in GitLab that this runner has the manager, when a job has ended.",
        ),
        NoReceipt::Failed { gitlab, error } => (
            match error {
                GitlabError::Timeout(_) | GitlabError::Request(_) => Code::ConnectFailed,
                error if error.is_refusal() => Code::Refused,
                _ => Code::ConnectFailed,
            },
            format!("GitLab at {gitlab} did not return the running jobs: {error}"),
            "Check the running jobs of the runner manager in GitLab, and `gitlab` in the provider block. The token needs the scope `read_api`, and its \
             user must own the runner or be an administrator.",
        ),
        NoReceipt::Interrupted => (
            Code::Interrupted,
            "the wait was cancelled".to_owned(),
            "Check the running jobs of the runner manager in GitLab.",
        ),
    }
}

//! `/debug/jobs/list`: one line per job, such as
//! `url=https://gitlab.example/group/project/-/jobs/17 state=running stage=step_script executor_stage=docker_run duration=1m2.5s`.

use std::{fmt, time::Duration};

/// One job of the runner. Its URL contains the name of a project, so it is only used for comparison.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    pub(super) url: String,
    pub state: String,
    pub stage: String,
    pub executor_stage: String,
    pub duration: Duration,
}

impl Job {
    /// The number at the end of the URL, which does not reveal the project.
    pub fn id(&self) -> Option<u64> {
        self.url.rsplit('/').next()?.parse().ok()
    }

    /// Whether the runner no longer runs it: it reports the end to GitLab, and lists the job until then.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "success" | "failed")
    }

    /// Whether the job has this URL, as in `CI_JOB_URL`.
    pub fn is_at(&self, url: &str) -> bool {
        !url.is_empty() && self.url.trim_end_matches('/') == url.trim_end_matches('/')
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id())
            .field("state", &self.state)
            .field("stage", &self.stage)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

/// Parses a job list; invalid lines are skipped.
pub(crate) fn parse(list: &str) -> Vec<Job> {
    list.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Job> {
    let field = |name: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    Some(Job {
        url: field("url")?,
        state: field("state")?,
        stage: field("stage").unwrap_or_default(),
        executor_stage: field("executor_stage").unwrap_or_default(),
        duration: field("duration").and_then(|text| parse_duration(&text)).unwrap_or_default(),
    })
}

/// Parses a duration as Go prints it: `1h2m3.5s`, `120ms`, `3.2µs`.
fn parse_duration(text: &str) -> Option<Duration> {
    crate::text::duration::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_list_is_parsed() {
        let list = "url=https://gitlab.example/g/p/-/jobs/17 state=running stage=step_script executor_stage=docker_run duration=1m2.5s\n\
                    not a job\n\
                    url=https://gitlab.example/g/p/-/jobs/18 state=pending stage= executor_stage= duration=3.2µs\n";
        let jobs = parse(list);
        assert_eq!(jobs.len(), 2);
        assert_eq!(jobs[0].id(), Some(17));
        assert_eq!(jobs[0].duration, Duration::from_millis(62_500));
        assert_eq!((jobs[0].stage.as_str(), jobs[0].executor_stage.as_str()), ("step_script", "docker_run"));
        assert!(jobs[0].is_at("https://gitlab.example/g/p/-/jobs/17"));
        assert!(!jobs[0].is_at("https://gitlab.example/g/p/-/jobs/1") && !jobs[0].is_at(""));
        assert!(!format!("{jobs:?}").contains("gitlab.example"), "the project shows");
    }
}

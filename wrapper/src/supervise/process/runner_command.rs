//! The command line of GitLab Runner.

/// Program names of GitLab Runner begin with this.
pub(super) const NAME: &str = "gitlab-runner";

/// The global flags of GitLab Runner that have a value.
const FLAGS_WITH_VALUE: [&str; 4] = ["cpuprofile", "log-format", "log-level", "l"];

/// Whether this command line, with a zero byte after each word, is `gitlab-runner run` or `gitlab-runner run-single`. Jobs use other commands of the
/// same program, such as `gitlab-runner artifacts-uploader`.
pub(super) fn is_runner(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split('\0');
    let program = words.next().unwrap_or_default();
    if !program.rsplit('/').next().unwrap_or_default().starts_with(NAME) {
        return false;
    }
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return word == "run" || word == "run-single";
        };
        if FLAGS_WITH_VALUE.contains(&flag) {
            words.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_command_run_of_gitlab_runner_is_a_runner() {
        let is = |words: &[&str]| {
            is_runner(&words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect::<Vec<_>>())
        };
        for words in [
            &["/usr/bin/gitlab-runner", "run", "--config", "/x.toml"][..],
            &["gitlab-runner", "--debug", "--log-level", "warn", "--log-format=json", "run"],
            &["gitlab-runner-linux-amd64", "run-single", "--url", "x"],
        ] {
            assert!(is(words), "{words:?}");
        }
        for words in [
            &[][..],
            &["gitlab-runner"],
            &["gitlab-runner", "artifacts-uploader", "--path", "run"],
            &["gitlab-runner-helper", "cache-archiver", "run"],
            &["gitlab-runner", "--log-level", "run", "verify"],
            &["sh", "-c", "gitlab-runner run", "run"],
            &["/bin/sh", "/usr/bin/gitlab-runner", "run"],
        ] {
            assert!(!is(words), "{words:?}");
        }
    }
}

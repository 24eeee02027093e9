//! Settings of the runner, from its `config.toml`.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use thiserror::Error;

/// Maximum length of a path in a reason, in bytes.
const MAX_SHOWN: usize = 255;

/// The content of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerConfig {
    pub listen_address: Option<String>,
    /// Maximum number of running jobs; `None` if the file has no valid number.
    pub concurrent: Option<u64>,
    /// Interval of the job requests of a section.
    pub check_interval: Duration,
    /// The runner's limit for its cleanup after SIGTERM.
    pub shutdown_timeout: Duration,
    /// The id that distinguishes the managers of one runner, from the file `.runner_system_id` beside the configuration.
    pub system_id: Option<String>,
    pub sections: Vec<Section>,
}

impl Default for RunnerConfig {
    fn default() -> Self {
        Self {
            listen_address: None,
            concurrent: None,
            check_interval: Self::CHECK_INTERVAL,
            shutdown_timeout: Self::SHUTDOWN_TIMEOUT,
            system_id: None,
            sections: Vec::new(),
        }
    }
}

impl RunnerConfig {
    /// GitLab Runner's defaults.
    pub const CHECK_INTERVAL: Duration = Duration::from_secs(3);
    pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

    /// Whether all slots (`concurrent`) have a job, if the number of jobs is known.
    pub(super) fn is_full(&self, jobs: Option<usize>) -> bool {
        jobs.zip(self.concurrent).is_some_and(|(jobs, slots)| slots > 0 && jobs as u64 >= slots)
    }
}

/// One `[[runners]]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    /// Scheme, host and port of its GitLab instance; `None` without a valid URL.
    pub gitlab: Option<String>,
    /// The id of the runner at this instance.
    pub id: Option<u64>,
    /// Number of consecutive failed health checks after which the runner disables this section...
    pub unhealthy_requests_limit: u64,
    /// ...for this time.
    pub unhealthy_interval: Duration,
    /// The number of attempts to report the end of a job (`job_status_final_update_retry_limit`).
    pub report_attempts: u32,
    /// Job requests go through the job router (`FF_USE_JOB_ROUTER`).
    pub uses_job_router: bool,
    /// A canary job runs at the start of the runner (`experimental.boot_verify`).
    pub boot_verify: bool,
}

impl Default for Section {
    fn default() -> Self {
        Self {
            name: String::new(),
            gitlab: None,
            id: None,
            unhealthy_requests_limit: Self::UNHEALTHY_REQUESTS_LIMIT,
            unhealthy_interval: Self::UNHEALTHY_INTERVAL,
            report_attempts: Self::REPORT_ATTEMPTS,
            uses_job_router: false,
            boot_verify: false,
        }
    }
}

impl Section {
    /// GitLab Runner's defaults.
    pub const UNHEALTHY_REQUESTS_LIMIT: u64 = 3;
    pub const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(3600);
    pub const REPORT_ATTEMPTS: u32 = 10;
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// GitLab Runner starts without a configuration, but accepts no jobs.
    #[error("the command is `gitlab-runner run-single`, which reads no configuration and has no HTTP server")]
    RunSingle,
    #[error("the runner's configuration {} does not exist", name(.0))]
    Missing(PathBuf),
    /// The wrapper can be root, and does not read a file that another user has chosen.
    #[error(
        "the runner runs as the user with UID {0}, and its command has no --config: add --config with the path of its configuration"
    )]
    OfAnotherUser(u32),
    #[error("cannot read the runner's configuration {}: {why}", name(path))]
    Unreadable { path: PathBuf, why: String },
    #[error(
        "cannot read the runner's configuration {}: its file system did not respond within {limit:?}",
        name(path)
    )]
    TooSlow { path: PathBuf, limit: Duration },
}

fn line_of(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}

/// The path, or the flags that it comes from if it must not be shown.
fn name(path: &Path) -> String {
    shown(path).map_or_else(|| "given by --config or CONFIG_FILE".to_owned(), |path| format!("{path:?}"))
}

/// A path as the reasons and the log show it; `None` for a text that is probably no path: a script, for example, may contain a secret.
fn shown(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let is_path =
        text.len() <= MAX_SHOWN && !text.contains(|char: char| char.is_control() || char.is_whitespace());
    is_path.then_some(text)
}

pub(crate) fn parse(text: &str) -> Result<RunnerConfig, String> {
    #[derive(Deserialize)]
    struct File {
        listen_address: Option<String>,
        concurrent: Option<i64>,
        check_interval: Option<toml::Value>,
        shutdown_timeout: Option<i64>,
        #[serde(default)]
        runners: Vec<Runner>,
    }
    #[derive(Deserialize)]
    struct Runner {
        #[serde(default)]
        name: String,
        #[serde(default)]
        url: String,
        id: Option<i64>,
        unhealthy_requests_limit: Option<i64>,
        unhealthy_interval: Option<GoDuration>,
        job_status_final_update_retry_limit: Option<i64>,
        #[serde(default)]
        feature_flags: HashMap<String, bool>,
        #[serde(default)]
        experimental: Experimental,
    }
    #[derive(Default, Deserialize)]
    struct Experimental {
        boot_verify: Option<BootVerify>,
    }
    #[derive(Deserialize)]
    struct BootVerify {
        #[serde(default)]
        enabled: bool,
    }
    /// The runner accepts a string such as `"120s"`, or a number of nanoseconds.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum GoDuration {
        Nanoseconds(u64),
        Text(String),
        Other(serde::de::IgnoredAny),
    }
    impl GoDuration {
        fn value(self) -> Option<Duration> {
            match self {
                Self::Nanoseconds(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
                Self::Text(text) => crate::text::duration::parse(&text).ok(),
                Self::Other(_) => None,
            }
        }
    }
    // The parser's message quotes the line, which may contain a token; so only the position is reported.
    let file: File = toml::from_str(text).map_err(|error| match error.span() {
        Some(span) => format!("invalid TOML in line {}", line_of(text, span.start)),
        None => "invalid TOML".to_owned(),
    })?;
    let seconds = |number: Option<i64>| {
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.filter(|number| *number > 0).map(Duration::from_secs)
    };
    let section = |runner: Runner| Section {
        name: runner.name,
        gitlab: origin(&runner.url),
        id: runner.id.and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0),
        unhealthy_requests_limit: runner
            .unhealthy_requests_limit
            .and_then(|limit| u64::try_from(limit).ok())
            .filter(|limit| *limit > 0)
            .unwrap_or(Section::UNHEALTHY_REQUESTS_LIMIT),
        unhealthy_interval: runner
            .unhealthy_interval
            .and_then(GoDuration::value)
            .unwrap_or(Section::UNHEALTHY_INTERVAL),
        report_attempts: runner
            .job_status_final_update_retry_limit
            .and_then(|limit| u32::try_from(limit).ok())
            .filter(|limit| *limit > 0)
            .unwrap_or(Section::REPORT_ATTEMPTS),
        uses_job_router: runner.feature_flags.get("FF_USE_JOB_ROUTER").copied().unwrap_or_default(),
        boot_verify: runner.experimental.boot_verify.is_some_and(|boot_verify| boot_verify.enabled),
    };
    Ok(RunnerConfig {
        listen_address: file.listen_address.filter(|address| !address.is_empty()),
        concurrent: file.concurrent.map_or(Some(1), |count| u64::try_from(count).ok()),
        check_interval: seconds(file.check_interval.and_then(|value| value.as_integer()))
            .unwrap_or(RunnerConfig::CHECK_INTERVAL),
        shutdown_timeout: seconds(file.shutdown_timeout).unwrap_or(RunnerConfig::SHUTDOWN_TIMEOUT),
        system_id: None,
        sections: file.runners.into_iter().map(section).collect(),
    })
}

/// Scheme, host and port of a URL. The rest may be a secret.
fn origin(url: &str) -> Option<String> {
    let url = url.trim().parse::<http::Uri>().ok()?;
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let host = url.host()?.to_ascii_lowercase();
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{scheme}://{host}{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_toml_is_reported_by_line_number_without_text() {
        for (text, line) in [
            ("concurrent = ", 1),
            ("concurrent = 1\n[[runners]]\ntoken = glrt-s3cret\n", 3),
            ("concurrent = 1\r\n\r\n[[runners]\r\n", 3),
            ("[[runners]]\nname = \"a\"\nname = \"b\"\n", 3),
            ("concurrent = \"x\"\n", 1),
        ] {
            assert_eq!(parse(text), Err(format!("invalid TOML in line {line}")), "{text:?}");
        }
    }

    #[test]
    fn config_sections_are_parsed() {
        let text = "concurrent = 4\nlisten_address = \":9252\"\n[[runners]]\nname = \"a\"\ntoken = \"glrt-abcdefghijk\"\n\
                    [runners.docker]\nimage = \"x\"\n[[runners]]\nname = \"b\"\n";
        let config = parse(text).unwrap();
        assert_eq!(config.listen_address.as_deref(), Some(":9252"));
        let names: Vec<_> = config.sections.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let limits = |more: &str| {
            let section = parse(&format!("[[runners]]\n{more}")).unwrap().sections.remove(0);
            (section.unhealthy_requests_limit, section.unhealthy_interval.as_secs())
        };
        assert_eq!(limits(""), (3, 3600));
        assert_eq!(limits("unhealthy_requests_limit = 10\nunhealthy_interval = \"120s\""), (10, 120));
        assert_eq!(limits("unhealthy_requests_limit = 0\nunhealthy_interval = 5000000000"), (3, 5));
        assert_eq!(limits("unhealthy_requests_limit = -1\nunhealthy_interval = true"), (3, 3600));
        let attempts = |limit: &str| {
            let text = format!("[[runners]]\njob_status_final_update_retry_limit = {limit}");
            parse(&text).unwrap().sections[0].report_attempts
        };
        assert_eq!((attempts("20"), attempts("0"), attempts("-1")), (20, 10, 10));
        assert_eq!(parse("").unwrap(), RunnerConfig { concurrent: Some(1), ..RunnerConfig::default() });
        assert_eq!((config.concurrent, parse("concurrent = -1").unwrap().concurrent), (Some(4), None));
        let interval = |text: &str| parse(text).unwrap().check_interval.as_secs();
        assert_eq!(
            (interval(""), interval("check_interval = 0"), interval("check_interval = 60")),
            (3, 3, 60)
        );
        assert_eq!(interval("check_interval = 0.1"), 3, "the runner refuses it");
        let cleanup = |text: &str| parse(text).unwrap().shutdown_timeout.as_secs();
        assert_eq!((cleanup(""), cleanup("shutdown_timeout = 600")), (30, 600));
        assert_eq!((cleanup("shutdown_timeout = 0"), cleanup("shutdown_timeout = -1")), (30, 30));
        let error = parse("[[runners]]\ntoken = \"s3cret\n").unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn registration_of_a_section_has_no_path_and_no_user() {
        let of = |more: &str| {
            let section = parse(&format!("[[runners]]\n{more}")).unwrap().sections.remove(0);
            (section.gitlab, section.id)
        };
        assert_eq!(of(""), (None, None));
        let url = |url: &str| of(&format!("url = \"{url}\"\nid = 7"));
        for (text, origin) in [
            ("https://gitlab.example", "https://gitlab.example"),
            ("https://GitLab.example/sub/", "https://gitlab.example"),
            ("http://user:s3cret@gitlab.example:8080/", "http://gitlab.example:8080"),
            ("http://[::1]:80", "http://[::1]:80"),
        ] {
            assert_eq!(url(text), (Some(origin.to_owned()), Some(7)));
        }
        assert_eq!((url("gitlab.example").0, url("/x y").0, of("id = -1").1), (None, None, None));
    }

    #[test]
    fn only_a_text_that_looks_like_a_path_is_shown() {
        let longest = format!("/{}", "x".repeat(254));
        for path in ["/etc/gitlab-runner/config.toml", "ü.toml", &longest] {
            assert_eq!(shown(Path::new(path)), Some(path));
        }
        let too_long = format!("{longest}x");
        for text in ["TOKEN=glrt-secret exec gitlab-runner", "/a\n", "/\u{1b}[2J", "/a\u{a0}b", &too_long] {
            assert_eq!(shown(Path::new(text)), None);
        }
    }

    #[test]
    fn error_shows_only_a_path() {
        let error = |path: &str| ConfigError::Missing(path.into()).to_string();
        assert_eq!(error("/x.toml"), "the runner's configuration \"/x.toml\" does not exist");
        let script = error("TOKEN=glrt-secret exec gitlab-runner run");
        assert_eq!(script, "the runner's configuration given by --config or CONFIG_FILE does not exist");
    }

    #[test]
    fn job_router_and_boot_verify_are_parsed() {
        let of = |more: &str| {
            let section = parse(&format!("[[runners]]\n{more}")).unwrap().sections.remove(0);
            (section.uses_job_router, section.boot_verify)
        };
        assert_eq!(of(""), (false, false));
        assert_eq!(of("[runners.feature_flags]\nFF_USE_JOB_ROUTER = true"), (true, false));
        assert_eq!(of("[runners.feature_flags]\nFF_USE_JOB_ROUTER = false"), (false, false));
        assert_eq!(of("[runners.experimental.boot_verify]\nenabled = true\ntimeout = \"5m\""), (false, true));
    }
}

//! `config.toml`, as far as the stand-in reads it: `concurrent`, `check_interval`, `shutdown_timeout`, `listen_address`, and
//! the sections `[[runners]]` with `name`, `url`, `token`, `limit`, `request_concurrency`, `unhealthy_requests_limit`,
//! `unhealthy_interval`, `job_status_final_update_retry_limit`, and `feature_flags.FF_USE_JOB_ROUTER`. Other tables below a section are skipped.

use std::{io, path::Path, time::Duration};

use super::Version;

/// A configuration file that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Config {
    /// Concurrent jobs over all sections.
    pub(super) concurrent: usize,
    /// Delay between two turns of a section. GitLab Runner uses whole seconds, the stand-in also fractions.
    pub(super) check_interval: Duration,
    /// How long a forceful shutdown waits for jobs to abort.
    pub(super) shutdown_timeout: Duration,
    pub(super) listen_address: Option<String>,
    pub(super) runners: Vec<Section>,
}

/// One `[[runners]]` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) token: String,
    /// Concurrent jobs of this section; 0 is no limit.
    pub(super) limit: usize,
    /// Concurrent job requests of this section.
    pub(super) request_concurrency: usize,
    /// Failed requests in a row that disable the section.
    pub(super) unhealthy_requests_limit: usize,
    /// How long a disabled section sends no requests.
    pub(super) unhealthy_interval: Duration,
    /// Attempts to report the end of a job (`job_status_final_update_retry_limit`).
    pub(super) report_attempts: u32,
    /// `FF_USE_JOB_ROUTER`.
    pub(super) uses_job_router: bool,
}

impl Default for Section {
    fn default() -> Section {
        Section {
            name: String::new(),
            url: String::new(),
            token: String::new(),
            limit: 0,
            request_concurrency: 1,
            unhealthy_requests_limit: 3,
            unhealthy_interval: Duration::from_secs(3600),
            report_attempts: 10,
            uses_job_router: false,
        }
    }
}

/// The error of an invalid file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("cannot read the configuration file")]
    Read(#[source] io::Error),
    #[error("line {line}: {problem}")]
    Syntax { line: usize, problem: String },
}

impl Default for Config {
    fn default() -> Config {
        Config {
            concurrent: 1,
            check_interval: Duration::from_secs(3),
            shutdown_timeout: Duration::from_secs(30),
            listen_address: None,
            runners: Vec::new(),
        }
    }
}

impl Config {
    /// Reads `path`. A missing file is the default configuration with zero runners, as in GitLab Runner. Since 18.10, a token can have
    /// variables of the environment; only `${NAME}` is known here.
    pub(super) fn load(path: &Path, version: Version) -> Result<Config, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let mut config = Config::parse(&text)?;
                if version.expands_tokens() {
                    config.runners.iter_mut().for_each(|section| section.token = expanded(&section.token));
                }
                Ok(config)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
            Err(error) => Err(ConfigError::Read(error)),
        }
    }

    /// Parses the text of a file.
    pub(super) fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut table = Table::Top;
        for (index, line) in text.lines().enumerate() {
            let syntax = |problem: String| ConfigError::Syntax { line: index + 1, problem };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('[') {
                table = match line {
                    "[[runners]]" => {
                        config.runners.push(Section::default());
                        Table::Runner
                    }
                    "[runners.feature_flags]" => Table::FeatureFlags,
                    _ if line.ends_with(']') => Table::Other,
                    _ => return Err(syntax(format!("{line:?} is not a table"))),
                };
                continue;
            }
            let (key, value) =
                line.split_once('=').ok_or_else(|| syntax(format!("{line:?} is not `key = value`")))?;
            let value = value.trim();
            match (table, key.trim(), config.runners.last_mut()) {
                (Table::Top, "concurrent", _) => config.concurrent = number(value).map_err(syntax)?,
                (Table::Top, "check_interval", _) => {
                    config.check_interval = seconds(value).map_err(syntax)?;
                }
                (Table::Top, "shutdown_timeout", _) => {
                    config.shutdown_timeout = seconds(value).map_err(syntax)?;
                }
                (Table::Top, "listen_address", _) => {
                    config.listen_address = Some(string(value).map_err(syntax)?);
                }
                (Table::Runner, "name", Some(section)) => section.name = string(value).map_err(syntax)?,
                (Table::Runner, "url", Some(section)) => section.url = string(value).map_err(syntax)?,
                (Table::Runner, "token", Some(section)) => section.token = string(value).map_err(syntax)?,
                (Table::Runner, "limit", Some(section)) => section.limit = number(value).map_err(syntax)?,
                (Table::Runner, "request_concurrency", Some(section)) => {
                    // Less than 1 is 1.
                    section.request_concurrency = number(value).map_err(syntax)?.max(1);
                }
                (Table::Runner, "unhealthy_requests_limit", Some(section)) => {
                    // Less than 1 is the default.
                    section.unhealthy_requests_limit = match number(value).map_err(syntax)? {
                        0 => Section::default().unhealthy_requests_limit,
                        limit => limit,
                    };
                }
                (Table::Runner, "unhealthy_interval", Some(section)) => {
                    let text = string(value).map_err(syntax)?;
                    let parsed = humantime::parse_duration(&text);
                    section.unhealthy_interval = parsed.map_err(|error| syntax(error.to_string()))?;
                }
                (Table::Runner, "job_status_final_update_retry_limit", Some(section)) => {
                    // Less than 1 is the default.
                    section.report_attempts = match value.parse().map_err(|_| syntax(value.to_owned()))? {
                        0 => Section::default().report_attempts,
                        attempts => attempts,
                    };
                }
                (Table::FeatureFlags, "FF_USE_JOB_ROUTER", Some(section)) => {
                    section.uses_job_router = value == "true";
                }
                _ => {}
            }
        }
        Ok(config)
    }
}

fn expanded(token: &str) -> String {
    let parts = token.split_once("${").and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (name, after))) = parts else { return token.to_owned() };
    format!("{before}{}{after}", std::env::var(name).unwrap_or_default())
}

#[derive(Debug, Clone, Copy)]
enum Table {
    Top,
    Runner,
    FeatureFlags,
    Other,
}

fn string(value: &str) -> Result<String, String> {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .map(str::to_owned)
        .ok_or_else(|| format!("{value} is not a quoted string"))
}

fn number(value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{value} is not a whole number"))
}

fn seconds(value: &str) -> Result<Duration, String> {
    value
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{value} is not a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_sections_are_parsed_without_subtables() {
        let config = Config::parse(
            r#"
            concurrent = 4
            check_interval = 0.5
            # a comment
            [session_server]
              listen_address = "0.0.0.0:8093"
            [[runners]]
              name = "one"
              url = "http://127.0.0.1:1"
              token = "glrt-1"
              limit = 2
              request_concurrency = 4
              unhealthy_requests_limit = 5
              unhealthy_interval = "2m30s"
              job_status_final_update_retry_limit = 20
              [runners.docker]
                name = "not mine"
            [[runners]]
              name = "two"
            "#,
        )
        .unwrap();
        assert_eq!(config.concurrent, 4);
        assert_eq!(config.check_interval, Duration::from_millis(500));
        assert_eq!(config.listen_address, None, "that was the session server's");
        let names: Vec<_> = config.runners.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        assert_eq!(config.runners[0].limit, 2);
        let requests = |section: &Section| section.request_concurrency;
        assert_eq!((requests(&config.runners[0]), requests(&config.runners[1])), (4, 1));
        let unhealthy =
            |section: &Section| (section.unhealthy_requests_limit, section.unhealthy_interval.as_secs());
        assert_eq!((unhealthy(&config.runners[0]), unhealthy(&config.runners[1])), ((5, 150), (3, 3600)));
        assert_eq!((config.runners[0].report_attempts, config.runners[1].report_attempts), (20, 10));
    }

    #[test]
    fn missing_config_is_empty_broken_config_is_an_error() {
        assert_eq!(
            Config::load(Path::new("/nowhere/config.toml"), "19.2.0".parse().unwrap()).unwrap(),
            Config::default()
        );
        assert_eq!(
            Config::parse("concurrent = many").unwrap_err().to_string(),
            "line 1: many is not a whole number"
        );
        assert!(Config::parse("[[runners]]\nwhat").is_err());
    }
}

//! Where the runner's settings come from: its command line and its environment.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::runner_config::{ConfigError, RunnerConfig};

/// GitLab Runner's default port for its HTTP server.
const DEFAULT_PORT: u16 = 9252;

const LOOPBACK: [&str; 2] = ["127.0.0.1", "[::1]"];

/// Programs that have their own `run` command.
const CONTAINER_ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Sources of the runner's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its configuration file.
    pub config: PathBuf,
    /// Neither the command nor the environment has the file, so that it depends on the runner's user.
    pub is_default: bool,
    /// Address of its HTTP server from the command line or the environment, which override the file.
    pub listen_address: Option<String>,
    /// The command is `run-single`: the runner has neither a configuration nor an HTTP server.
    pub is_single: bool,
    /// The values are those of no process: those of the running process replace them.
    pub of_process: bool,
}

/// Where the runner's HTTP server can be reached: addresses with a port. They are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(pub Vec<String>);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" and "))
    }
}

impl Source {
    /// Parses a command that runs `gitlab-runner run`. `env` reads a variable of the runner's environment.
    pub fn new(command: &[OsString], env: impl Fn(&str) -> Option<OsString>) -> Self {
        let words = runner_command(command);
        let args = words.get(1..).unwrap_or_default();
        let config =
            flag(args, &["config", "c"]).or_else(|| env("CONFIG_FILE").filter(|path| !path.is_empty()));
        let is_default = config.is_none();
        let config = config.map_or_else(|| default_config(env("HOME").as_deref()), PathBuf::from);
        // The runner changes to this directory first.
        let directory = flag(args, &["working-directory", "d"]).unwrap_or_default();
        let config = Path::new(&directory).join(config);
        let listen_address = flag(args, &["listen-address"])
            .or_else(|| env("LISTEN_ADDRESS"))
            .and_then(|address| address.into_string().ok())
            .filter(|address| !address.is_empty());
        let is_single = words.first().is_some_and(|word| word == RUN_SINGLE);
        Self { config, is_default, listen_address, is_single, of_process: false }
    }

    /// The settings of a runner that another program starts. Before it runs, the defaults.
    pub fn of_process() -> Self {
        Self { of_process: true, ..Self::new(&[], |_| None) }
    }

    /// The configuration file of a runner of this user. Another user than root has chosen the home directory, so that its file is not read.
    pub fn config_of(&self, runner: Option<u32>) -> Result<&Path, ConfigError> {
        match runner.filter(|_| self.is_default) {
            None => Ok(&self.config),
            Some(runner) if runner == rustix::process::getuid().as_raw() => Ok(&self.config),
            Some(0) => Ok(Path::new(DEFAULT_OF_ROOT)),
            Some(runner) => Err(ConfigError::OfAnotherUser(runner)),
        }
    }

    /// Address of the runner's HTTP server, if it has one.
    pub fn endpoint(&self, config: Option<&RunnerConfig>) -> Option<Endpoint> {
        if self.is_single {
            return None;
        }
        let configured = || config?.listen_address.as_deref();
        self.listen_address.as_deref().or_else(configured).map(connectable)
    }
}

/// As in GitLab Runner: the system file for root, otherwise a file in the home directory. The runner inherits the wrapper's user and home directory,
/// unless its command changes them.
fn default_config(home: Option<&OsStr>) -> PathBuf {
    match home {
        Some(home) if !rustix::process::geteuid().is_root() => {
            Path::new(home).join(".gitlab-runner/config.toml")
        }
        _ => PathBuf::from(DEFAULT_OF_ROOT),
    }
}

/// GitLab Runner's default configuration for root.
const DEFAULT_OF_ROOT: &str = "/etc/gitlab-runner/config.toml";

const RUN_SINGLE: &str = "run-single";

/// `run` or `run-single`, and the words after it. The words before it belong to the runner's program, or to a program that starts it: there, `-c` and
/// `-d` can have any meaning, and the value of `sh -c` is a script that may contain a secret.
fn runner_command(command: &[OsString]) -> &[OsString] {
    let is_run = |word: &OsString| word == "run" || word == RUN_SINGLE;
    let Some(at) = command.iter().skip(1).position(is_run).map(|at| at + 1) else { return &[] };
    let (before, from_run) = command.split_at(at);
    // The first `run` may be a command of the container engine. The runner's files are in the container in any case.
    let is_in_container = before.iter().any(|word| {
        let program = Path::new(word).file_name().and_then(OsStr::to_str);
        program.is_some_and(|program| CONTAINER_ENGINES.contains(&program))
    });
    if is_in_container { &[] } else { from_run }
}

/// The value of a flag in each syntax that the runner accepts: `--name v`, `--name=v`, and both with one dash.
fn flag(args: &[OsString], names: &[&str]) -> Option<OsString> {
    let mut found = None;
    for (at, arg) in args.iter().enumerate() {
        let Some(text) = arg.to_str() else { continue };
        let Some(text) = text.strip_prefix("--").or_else(|| text.strip_prefix('-')) else { continue };
        found = match text.split_once('=') {
            Some((name, value)) if names.contains(&name) => Some(value.into()),
            None if names.contains(&text) => args.get(at + 1).cloned(),
            _ => continue,
        };
    }
    found
}

/// Converts a listen address to the addresses to connect to. A wildcard address becomes loopback: of both families, because the runner accepts
/// both, but the host may not have both. A missing port becomes the default.
fn connectable(address: &str) -> Endpoint {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && (!host.contains(':') || host.ends_with(']')) => {
            (host, port.to_owned())
        }
        _ => (address, DEFAULT_PORT.to_string()),
    };
    let ip = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse::<IpAddr>();
    let hosts = match ip.map(|ip| ip.to_canonical()) {
        Ok(ip) if ip.is_unspecified() => LOOPBACK.map(str::to_owned).to_vec(),
        Ok(IpAddr::V6(ip)) => vec![format!("[{ip}]")],
        Ok(IpAddr::V4(ip)) => vec![ip.to_string()],
        Err(_) if host.is_empty() => LOOPBACK.map(str::to_owned).to_vec(),
        Err(_) => vec![host.to_owned()],
    };
    Endpoint(hosts.iter().map(|host| format!("{host}:{port}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(args: &[&str], env: &[(&str, &str)]) -> Source {
        of_command(&[&["gitlab-runner"], args].concat(), env)
    }

    fn of_command(words: &[&str], env: &[(&str, &str)]) -> Source {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        Source::new(&words, |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn command_line_overrides_environment_overrides_file() {
        let env = [("CONFIG_FILE", "/env.toml"), ("LISTEN_ADDRESS", ":1")];
        let all = source(&["run", "--config", "/arg.toml", "--listen-address=:2"], &env);
        assert_eq!((all.config, all.listen_address), ("/arg.toml".into(), Some(":2".to_owned())));
        let env = source(&["run"], &env);
        assert_eq!(
            (env.config.clone(), env.listen_address.clone()),
            ("/env.toml".into(), Some(":1".to_owned()))
        );
        let file = RunnerConfig { listen_address: Some(":3".to_owned()), ..RunnerConfig::default() };
        for config in [Some(&file), None] {
            assert_eq!(env.endpoint(config), Some(connectable(":1")), "{config:?}");
        }
        for (config, path) in [("x.toml", "/home/runner/x.toml"), ("/x.toml", "/x.toml")] {
            let below = source(&["run", "--config", config, "--working-directory=/home/runner"], &[]);
            assert_eq!(below.config, PathBuf::from(path));
        }
        let bare = source(&["run", "-c", "/x.toml"], &[]);
        assert_eq!(bare.config, PathBuf::from("/x.toml"));
        assert_eq!(bare.endpoint(Some(&file)), Some(connectable(":3")));
        assert_eq!(bare.endpoint(None), None);
    }

    #[test]
    fn default_config_depends_on_the_user_of_the_runner() {
        let own = rustix::process::getuid().as_raw();
        let other = own + 4711;
        let home = [("HOME", "/home/of-the-wrapper")];
        let default = source(&["run"], &home);
        let file = |uid| default.config_of(uid).map(Path::to_owned);
        assert_eq!(file(Some(own)), Ok(default.config.clone()));
        assert_eq!(file(None), Ok(default.config.clone()), "not started yet");
        assert_eq!(file(Some(other)), Err(ConfigError::OfAnotherUser(other)));
        assert_eq!(file(Some(0)), Ok(DEFAULT_OF_ROOT.into()));
        for named in
            [source(&["run", "-c", "/x.toml"], &home), source(&["run"], &[("CONFIG_FILE", "/x.toml")])]
        {
            for uid in [None, Some(0), Some(own), Some(other)] {
                assert_eq!(named.config_of(uid), Ok(Path::new("/x.toml")), "{uid:?}");
            }
        }
    }

    #[test]
    fn launcher_flags_are_not_runner_flags() {
        const ENV: &[(&str, &str)] = &[("CONFIG_FILE", "/env.toml")];
        let config = |words: &[&str]| of_command(words, ENV).config;
        for words in [
            &["/bin/sh", "-c", "TOKEN=glrt-secret exec gitlab-runner run --config /x.toml"][..],
            &["sudo", "-u", "runner", "bash", "-c", "TOKEN=glrt-secret gitlab-runner run"],
            &["su", "runner", "-c=glrt-secret", "-d", "glrt-secret"],
            &["docker", "run", "-d", "gitlab/gitlab-runner", "run", "--config", "/etc/other.toml"],
            &["sudo", "/usr/bin/podman", "run", "-d", "glrt-secret"],
            &["run", "--config", "/x.toml"],
            &["env", "-c", "/x.toml", "gitlab-runner", "run"],
        ] {
            assert_eq!(config(words), PathBuf::from("/env.toml"), "{words:?}");
        }
        for words in [
            &["sudo", "gitlab-runner", "run", "--config", "/x.toml"][..],
            &["gitlab-runner", "--debug", "run", "-c", "/x.toml"],
            &["gitlab-runner", "run-single", "-c=/x.toml"],
            &["sh", "-c", "exec sleep infinity", "run", "--config", "/x.toml"],
            &["/entrypoint", "run", "--user=gitlab-runner", "--config=/x.toml"],
        ] {
            assert_eq!(config(words), PathBuf::from("/x.toml"), "{words:?}");
        }
        let single = of_command(&["gitlab-runner", "run-single", "--listen-address", ":1"], ENV);
        assert!(single.is_single && single.endpoint(None).is_none());
        assert!(!of_command(&["gitlab-runner", "run", "run-single"], ENV).is_single);
        let listen = |words: &[&str]| of_command(words, ENV).listen_address;
        assert_eq!(listen(&["proxy", "--listen-address", ":1", "gitlab-runner", "run"]), None);
    }

    #[test]
    fn listen_address_maps_to_connect_address() {
        let both = "127.0.0.1:80 and [::1]:80";
        let all =
            ["", "0.0.0.0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "[0::]", "[::0.0.0.0]", "[::ffff:0.0.0.0]"];
        for host in all {
            assert_eq!(connectable(&format!("{host}:80")).to_string(), both, "{host}");
            let without_port = connectable(host).to_string();
            assert_eq!(without_port, "127.0.0.1:9252 and [::1]:9252", "{host}");
        }
        for (listen, connect) in [
            ("::", "127.0.0.1:9252 and [::1]:9252"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("localhost", "localhost:9252"),
            ("localhost:80", "localhost:80"),
            ("[::1]:7", "[::1]:7"),
            ("::1", "[::1]:9252"),
            // The runner listens on the IPv4 address. A host without IPv6 could not connect to the other one.
            ("[::ffff:127.0.0.1]:7", "127.0.0.1:7"),
            ("127.0.0.1:http-alt", "127.0.0.1:http-alt"),
        ] {
            assert_eq!(connectable(listen).to_string(), connect, "{listen}");
        }
    }
}

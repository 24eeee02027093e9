use futures::FutureExt as _;
use grit_plugin::{Problem, schema::is_known, warnings_of};

use super::*;
use crate::config::{manager::RunnerManagerArgs, object::Object as _};

/// `ssh.proxy_jump[0].host_key`.
fn path_of(attribute: &str) -> AttributePath {
    attribute.split('.').fold(AttributePath::root(), |path, step| {
        let (name, index) = step.split_once('[').unwrap_or((step, ""));
        let path = path.attribute(name.to_owned());
        match index.trim_end_matches(']').parse::<i64>() {
            Ok(index) => path.index(index),
            Err(_) => path,
        }
    })
}

/// The errors and the warnings of the check.
fn check(args: &SshArgs) -> (Problems, Problems) {
    let mut errors = Problems::default();
    let check = warnings_of(async { args.check_at(&AttributePath::new("ssh"), &mut errors) });
    let ((), warnings) = check.now_or_never().unwrap();
    (errors, warnings)
}

/// A key in this file.
fn file(private_key_path: Value<String>) -> KeyArgs {
    KeyArgs { private_key_path, ..KeyArgs::default() }
}

#[test]
fn unknown_element_does_not_skip_other_checks() {
    let value = |text: &str| Value::Value(text.to_owned());
    let command = vec![value("ssh"), Value::Unknown, value("{{hots}}")];
    let args = SshArgs { proxy_command: Value::Value(command), ..SshArgs::default() };
    assert!(!is_known(&args));
    let (problems, _) = check(&args);
    let paths: Vec<_> = problems.into_iter().map(|error| error.path).collect();
    assert_eq!(paths, [path_of("ssh.proxy_command[2]")]);
}

#[test]
fn tokens_of_ssh_config_are_a_warning() {
    let list = |texts: &[&str]| Value::Value(texts.iter().map(|it| Value::Value((*it).to_owned())).collect());
    let proxy = SshArgs { proxy_command: list(&["ssh", "-W", "%h:%p", "bastion"]), ..SshArgs::default() };
    let ssh = SshArgs { ssh_command: list(&["ssh", "-T", "%r@%h"]), ..SshArgs::default() };
    for (args, path, tokens, names) in [
        (proxy, "ssh.proxy_command[2]", "%h, %p", "{{host}}, {{port}}"),
        (ssh, "ssh.ssh_command[2]", "%h, %r", "{{host}}, {{username}}"),
    ] {
        let (problems, warnings) = check(&args);
        assert!(problems.is_empty(), "{problems:?}");
        let warnings: Vec<_> = warnings.into_iter().collect();
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert_eq!(warning.path, path_of(path));
        let words =
            format!("`{path}`: tokens of ssh_config are not replaced: write {names} instead of {tokens}.");
        assert!(warning.detail().starts_with(&words), "{}", warning.detail());
    }
}

#[test]
fn ssh_errors_point_at_their_attributes() {
    let value = |text: &str| Value::Value(text.to_owned());
    let args = SshArgs {
        key: file(value("/nonexistent/key")),
        call_timeout: value("10"),
        host_ca: Value::Value(vec![value("no key")]),
        proxy_jump: Value::Value(vec![Value::Value(HopArgs::default()), Value::Null]),
        ssh_command: Value::Value(vec![value("nc"), Value::Null]),
        ..SshArgs::default()
    };
    let (problems, warnings) = check(&args);
    let warned: Vec<_> = warnings.into_iter().map(|warning| warning.path).collect();
    assert_eq!(warned, [path_of("ssh.private_key_path")], "no connection is made in a plan");
    let paths: Vec<_> = problems.into_iter().map(|error| error.path).collect();
    let wanted = [
        "ssh.host_ca[0]",
        "ssh.call_timeout",
        "ssh.proxy_jump[1]",
        "ssh.ssh_command[1]",
        "ssh.ssh_command",
        "ssh.proxy_jump[0].address",
    ];
    assert_eq!(paths, wanted.map(path_of));
}

#[test]
fn certificate_and_passphrase_need_a_private_key() {
    let value = |text: &str| Value::Value(text.to_owned());
    let hop = |private_key: Value<String>| {
        let mut hop = HopArgs::default();
        (hop.address, hop.key.private_key) = (value("bastion"), private_key);
        (hop.key.passphrase, hop.key.certificate_path) = (value("secret"), value("/nonexistent/cert"));
        Value::Value(hop)
    };
    let args = SshArgs {
        key: KeyArgs { certificate_path: value("/nonexistent/cert"), ..KeyArgs::default() },
        agent: Value::Value(AgentArgs::default()),
        proxy_jump: Value::Value(vec![hop(Value::Null), hop(Value::Unknown)]),
        ..SshArgs::default()
    };
    let errors = |args: &SshArgs| {
        let (problems, _) = check(args);
        let summaries: Vec<_> = problems.iter().map(|error| error.summary.clone()).collect();
        assert!(summaries.iter().all(|it| it == "Attribute has no effect"), "{summaries:?}");
        problems.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    let wanted =
        ["ssh.proxy_jump[0].certificate_path", "ssh.proxy_jump[0].passphrase", "ssh.certificate_path"];
    assert_eq!(errors(&args), wanted.map(path_of));
    let without_hops = || SshArgs { proxy_jump: Value::Null, ..args.clone() };
    // It belongs to `ssh_key_pem` of the runner managers, or to a key that is not known yet.
    assert_eq!(errors(&SshArgs { agent: Value::Null, ..without_hops() }), []);
    for private_key_path in [Value::Unknown, value("/nonexistent/key")] {
        let key = KeyArgs { private_key_path, ..args.key.clone() };
        assert_eq!(errors(&SshArgs { key, ..without_hops() }), []);
    }
}

#[test]
fn unreadable_known_hosts_file_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let check = |path: &std::path::Path, home: Option<&str>| {
        let known_hosts_path = Value::Value(path.to_str().unwrap().to_owned());
        let args = SshArgs { known_hosts_path, home: home.map(PathBuf::from), ..SshArgs::default() };
        let (problems, warnings) = check(&args);
        assert_eq!(problems.len(), 0, "{problems:?}");
        warnings.into_iter().map(|warning| (warning.path.clone(), warning.detail())).collect::<Vec<_>>()
    };
    let warned = check(&dir.path().join("missing"), None);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!(warned[0].0, path_of("ssh.known_hosts_path"));
    assert!(warned[0].1.contains("missing cannot be read: No such file or directory"), "{warned:?}");

    // A line can be added later.
    std::fs::write(dir.path().join("other"), "# comment\nhost ssh-ed25519\n").unwrap();
    let warned = check("~/other".as_ref(), dir.path().to_str());
    assert_eq!(warned[0].0, path_of("ssh.known_hosts_path"));
    assert!(warned[0].1.contains("other, no known_hosts entry found (lines: 1, host keys: 0)"), "{warned:?}");
}

/// A GitLab CI/CD variable of type File contains a path.
#[test]
fn unusable_variables_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "content\n").unwrap();
    let path = file.to_str().unwrap();
    let no_entry = "no known_hosts entry found (lines: 1, host keys: 0";
    for (name, value, words) in [
        (
            "GRIT_SSH_PRIVATE_KEY",
            path,
            "it looks like a file path; set private_key_path (GRIT_SSH_PRIVATE_KEY_PATH)",
        ),
        ("GRIT_SSH_PRIVATE_KEY_PATH", "/nonexistent/key", "/nonexistent/key cannot be read"),
        ("GRIT_SSH_CERTIFICATE_PATH", path, "it cannot be parsed"),
        (
            "GRIT_SSH_KNOWN_HOSTS",
            path,
            "it looks like a file path; set known_hosts_path (GRIT_SSH_KNOWN_HOSTS_PATH)",
        ),
        ("GRIT_SSH_KNOWN_HOSTS", "hello", no_entry),
        ("GRIT_SSH_KNOWN_HOSTS_PATH", path, no_entry),
        ("GRIT_SSH_USERNAME", path, "it is the path of a file"),
        ("GRIT_SSH_PASSPHRASE", path, "it is the path of a file"),
        ("GRIT_SSH_USERNAME", "deploy", ""),
        ("GRIT_SSH_PASSPHRASE", "/not a file", ""),
    ] {
        let args = SshArgs::default().or_environment(|it| (it == name).then(|| value.to_owned()));
        let ((), warnings) = warnings_of(async { args.check_variables() }).now_or_never().unwrap();
        let warned: Vec<_> = warnings.iter().map(Problem::detail).collect();
        let is_right = |text: &str| text.starts_with(&format!("`{name}`: ")) && text.contains(words);
        assert!(warned.len() == usize::from(!words.is_empty()), "{name}: {warned:?}");
        assert!(warned.iter().all(|text| is_right(text)), "{name}: {warned:?}");
    }
}

#[test]
fn too_short_durations_are_rejected() {
    let value = |text: &str| Value::Value(text.to_owned());
    let check = |text: &str| {
        let args = SshArgs {
            connect_timeout: value(text),
            call_timeout: value(text),
            keepalive_interval: value(text),
            ..SshArgs::default()
        };
        let (problems, _) = check(&args);
        problems.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(check("2s"), []);
    assert_eq!(check("100ms"), ["ssh.connect_timeout"].map(path_of));
    assert_eq!(check("1999ms"), ["ssh.connect_timeout"].map(path_of));
    let all = ["ssh.connect_timeout", "ssh.call_timeout", "ssh.keepalive_interval"].map(path_of);
    for short in ["0s", "0h", "99ms", "0.01s"] {
        assert_eq!(check(short), all, "{short}");
    }
    assert_eq!(check(""), all, "an empty text is no duration");
}

/// As modules write it whose variables default to the empty text.
#[test]
fn empty_string_attribute_counts_as_null() {
    let (value, empty) = (|text: &str| Value::Value(text.to_owned()), || Value::Value(String::new()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let keygen = std::process::Command::new("ssh-keygen");
    let made = { keygen }.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status().unwrap();
    assert!(made.success());
    let args = SshArgs {
        username: empty(),
        key: KeyArgs {
            passphrase: empty(),
            certificate_path: empty(),
            ..file(value(path.to_str().unwrap()))
        },
        known_hosts: empty(),
        known_hosts_path: empty(),
        ..SshArgs::default()
    };
    let (problems, _) = check(&args);
    assert_eq!(problems.len(), 0, "{problems:?}");
    let login = args.login(None, None);
    let credentials = login.credentials.unwrap();
    assert!(login.username.is_none() && credentials.passphrase.is_none());
    assert!(matches!(credentials.private_key, Some(KeySource::File(..))));
}

/// Without this error, `host_key = ""` would accept any key that another source accepts.
#[test]
fn empty_key_attribute_is_an_error() {
    let list = |text: &str| Value::Value(vec![Value::Value(text.to_owned())]);
    for text in ["", " \n", "# later\n"] {
        let value = || Value::Value(text.to_owned());
        let mut hop = HopArgs::default();
        hop.address = Value::Value("bastion".to_owned());
        (hop.key.private_key, hop.host_key) = (value(), value());
        let args = SshArgs {
            key: KeyArgs { private_key: value(), ..KeyArgs::default() },
            host_keys: list(text),
            host_ca: list(text),
            proxy_jump: Value::Value(vec![Value::Value(hop)]),
            ..SshArgs::default()
        };
        let (problems, _) = check(&args);
        let paths: Vec<_> = problems.into_iter().map(|error| error.path).collect();
        let wanted = [
            "ssh.host_keys[0]",
            "ssh.host_ca[0]",
            "ssh.private_key",
            "ssh.proxy_jump[0].host_key",
            "ssh.proxy_jump[0].private_key",
        ];
        assert_eq!(paths, wanted.map(path_of), "{text:?}");

        let manager = RunnerManagerArgs { host_key: value(), ..RunnerManagerArgs::default() };
        let mut problems = Problems::default();
        manager.check_at(&AttributePath::new("runner_manager"), &mut problems);
        let paths: Vec<_> = problems.into_iter().map(|error| error.path).collect();
        assert!(paths.contains(&path_of("runner_manager.host_key")), "{text:?}: {paths:?}");
    }
}

#[test]
fn unknown_hop_attribute_makes_ssh_block_unknown() {
    let hop = |hop| SshArgs { proxy_jump: Value::Value(vec![hop]), ..SshArgs::default() };
    assert!(is_known(&hop(Value::Value(HopArgs::default()))));
    assert!(!is_known(&hop(Value::Unknown)));
    let mut unknown = HopArgs::default();
    unknown.key.passphrase = Value::Unknown;
    assert!(!is_known(&hop(Value::Value(unknown))));
    let agent = AgentArgs { identity: Value::Unknown, ..AgentArgs::default() };
    assert!(!is_known(&SshArgs { agent: Value::Value(agent), ..SshArgs::default() }));
}

#[test]
fn default_known_hosts_files_are_only_a_fallback() {
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIElNXKZbIZrqk5rLVCYc1gTSkSkJy1V/dCsWHxKqWHVz";
    let value = |text: &str| Value::Value(text.to_owned());
    let list = |text: &str| Value::Value(vec![value(text)]);
    let (silent, none, usual) = (SshArgs::default, 0, 3);
    for (case, args, files) in [
        ("nothing", silent(), usual),
        ("text", SshArgs { known_hosts: value("h ssh-ed25519 AAAA"), ..silent() }, none),
        ("pins", SshArgs { host_keys: list(KEY), ..silent() }, none),
        ("an authority", SshArgs { host_ca: list(KEY), ..silent() }, none),
        ("anything goes", SshArgs { insecure_ignore_host_key: Value::Value(true), ..silent() }, none),
        (
            "a file beside text",
            SshArgs { known_hosts: value("h"), known_hosts_path: value("/nonexistent"), ..silent() },
            1,
        ),
    ] {
        assert_eq!(args.settings(1).trust.known_hosts_files.len(), files, "{case}");
    }
}

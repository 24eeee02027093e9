//! The command lines of docs/guides/ssh.md with stand-ins: scripts with the documented arguments of the real tools
//! that write to stderr as those do, and forward the connection.

use crate::{
    fixture::{Fixture, soon},
    guide::assert_message,
    methods::CARRY,
    stub::Wrapper,
};
use grit_testkit::program;
use grit_tests::provider_client::{Connector, SshOptions, StrategyOptions, Target};
use grit_tests::{sshd::ClientKey, terraform::built};
use std::{fs, path::PathBuf, process::Command, time::Duration};

const GUIDE: &str = include_str!("../../../docs/guides/ssh.md");

/// The tools of the recipes: each parses its arguments as the real one does, rejects unknown ones, and connects to the
/// given address.
const TOOLS: [(&str, &str); 6] = [
    ("aws", include_str!("tools/aws.sh")),
    ("boundary", include_str!("tools/boundary.sh")),
    ("gcloud", include_str!("tools/gcloud.sh")),
    ("kubectl", include_str!("tools/kubectl.sh")),
    ("ssh", include_str!("tools/ssh.sh")),
    ("tsh", include_str!("tools/tsh.sh")),
];

/// The recipes: strategy and arguments.
fn recipes() -> Vec<(&'static str, Vec<String>)> {
    let assignments = GUIDE.lines().filter_map(|line| line.split_once("_command = ["));
    let read = |list| serde_json::from_str(&format!("[{list}")).unwrap();
    assignments.map(|(name, list)| (name, read(list))).collect()
}

/// Whether a runner manager needs `address`.
fn uses_address(arguments: &[String]) -> bool {
    let uses =
        |argument: &String| ["{{address}}", "{{host}}", "{{port}}"].iter().any(|it| argument.contains(it));
    arguments.iter().any(uses)
}

/// Installs the tools in a directory, with the remote side: the host, its user, `nc` and the wrapper's program.
fn install_tools(fixture: &Fixture) -> PathBuf {
    let tools = fixture.dir.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let address = fixture.sshd.address();
    let head = format!(
        "TOOLS='{}' CARRY='{CARRY}' IP='{}' PORT='{}' LOGIN='{}'\nexport PATH=\"$TOOLS:$PATH\"\n\
         say() {{ echo \"$*\" >&2; }}\nfail() {{ say \"ERROR: $*\"; exit 2; }}\n",
        tools.display(),
        address.ip(),
        address.port(),
        fixture.sshd.username(),
    );
    for (name, body) in TOOLS {
        program::script(&tools.join(name), &format!("{head}{body}")).unwrap();
    }
    std::os::unix::fs::symlink(built("grit-wrapper").unwrap(), tools.join("grit-wrapper")).unwrap();
    program::script(&tools.join("nc"), &format!("exec {CARRY} tcp \"$@\"")).unwrap();
    tools
}

#[tokio::test]
async fn guide_recipes_transport_a_call() {
    let fixture = Fixture::new();
    let port = Wrapper::tcp();
    let tools = install_tools(&fixture);
    let call = async |strategy: &str, mut arguments: Vec<String>| {
        let to_port = arguments.iter().any(|argument| argument.contains("{{wrapper_port}}"));
        arguments[0] = tools.join(&arguments[0]).display().to_string();
        let strategy = match strategy {
            "proxy" => StrategyOptions::ProxyCommand(arguments),
            "ssh" => StrategyOptions::SshCommand(arguments),
            other => panic!("{other} is no strategy with a command"),
        };
        let is_by_name = matches!(&strategy, StrategyOptions::SshCommand(it) if !uses_address(it));
        let options = SshOptions { strategy, ..fixture.options() };
        assert_eq!(options.check(), []);
        let wrapper = if to_port { &port.address } else { &fixture.wrapper.address };
        let target = Target {
            instance_id: Some("i-07".to_owned()),
            wrapper_address: wrapper.parse().unwrap(),
            ..fixture.target()
        };
        let connector = Connector::new(options);
        let client = if is_by_name { connector.client_by_name(target) } else { connector.client(target) };
        soon(client.check_status()).await
    };
    let recipes = recipes();
    assert_eq!(recipes.len(), 11);
    for (strategy, arguments) in recipes {
        let answer = call(strategy, arguments.clone()).await;
        answer.unwrap_or_else(|error| panic!("{arguments:?}: {}", fixture.message(&error)));
        // The stand-ins reject wrong arguments.
        let (last, others) = arguments.split_last().unwrap();
        let answer = call(strategy, others.to_vec()).await;
        assert!(answer.is_err(), "{arguments:?} works without {last:?}");
    }
}

#[tokio::test]
async fn message_shows_that_the_pod_is_missing() {
    let fixture = Fixture::new();
    let tools = install_tools(&fixture);
    let recipe = recipes().into_iter().map(|(_, arguments)| arguments).find(|it| it[0] == "kubectl");
    let mut arguments = recipe.unwrap();
    arguments[0] = tools.join("kubectl").display().to_string();
    let options = SshOptions { strategy: StrategyOptions::SshCommand(arguments), ..fixture.options() };
    let target = Target { instance_name: "gone-0".to_owned(), ..fixture.target() };
    let error = soon(Connector::new(options).client_by_name(target).check_status()).await.unwrap_err();
    assert_message("ssh_command_without_pod", fixture.message(&error));
}

/// The recipes for OpenSSH with the real client and server. The programs are only on the PATH of the server's sessions.
#[tokio::test]
async fn openssh_recipes_connect() {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path().display().to_string();
    let socat = format!("[ \"$1\" = - ] || exit 2; exec {CARRY} unix \"${{2#UNIX-CONNECT:}}\"");
    program::script(&dir.path().join("socat"), &socat).unwrap();
    std::os::unix::fs::symlink(built("grit-wrapper").unwrap(), dir.path().join("grit-wrapper")).unwrap();
    program::script(&dir.path().join("nc"), &format!("[ \"$1\" = -U ] || exit 2; exec {CARRY} unix \"$2\""))
        .unwrap();
    let confined = ClientKey::generate(dir.path(), "confined", "ed25519", "").unwrap();
    // The key allows only this, with any use.
    let socket = dir.path().join("wrapper.sock");
    let only = crate::deploy_user::confined_to_a_program(&socket.display().to_string(), &confined.public);
    let fixture = Fixture::with(|builder| {
        builder.config(format!("SetEnv PATH={tools}:/usr/bin:/bin")).authorized_line(only)
    });
    let (port, wrapper) = (Wrapper::tcp(), Wrapper::unix(&socket));
    let recipe = |part: &str| {
        let found = recipes().into_iter().find(|(_, arguments)| {
            arguments[0] == "ssh" && arguments.iter().any(|argument| argument.contains(part))
        });
        found.unwrap().1
    };
    let options = |key: &ClientKey, mut arguments: Vec<String>| {
        let known = fixture.dir.path().join("known_hosts");
        fs::write(&known, fixture.sshd.known_hosts()).unwrap();
        let known = format!("UserKnownHostsFile={}", known.display());
        let (key, port) = (key.path.display().to_string(), fixture.sshd.address().port().to_string());
        let own = ["-F", "none", "-o", "IdentitiesOnly=yes", "-o", &known, "-i", &key, "-p", &port];
        arguments.splice(1..1, own.map(str::to_owned));
        for argument in &mut arguments {
            *argument = argument.replace("deploy@", &format!("{}@", fixture.sshd.username()));
        }
        SshOptions { strategy: StrategyOptions::SshCommand(arguments), ..SshOptions::default() }
    };
    let call_with = async |options: SshOptions, address: &str| {
        let target = Target { wrapper_address: address.parse().unwrap(), ..fixture.target() };
        soon(Connector::new(options).client(target).check_status()).await
    };
    let call = async |key: &ClientKey, arguments: Vec<String>, address: &str| {
        call_with(options(key, arguments), address).await
    };
    let dial = recipe("dial-stdio");
    call(&fixture.key, dial.clone(), &fixture.wrapper.address).await.unwrap();
    for other in ["socat - UNIX-CONNECT:{{wrapper_path}}", "nc -U {{wrapper_path}}"] {
        assert!(GUIDE.contains(&format!("`{other}`")));
        let replaced: Vec<String> = dial
            .iter()
            .map(|it| it.replace("grit-wrapper dial-stdio --address {{wrapper_address}}", other))
            .collect();
        assert_ne!(replaced, dial);
        call(&fixture.key, replaced, &fixture.wrapper.address).await.unwrap();
    }
    call(&fixture.key, recipe("{{wrapper_port}}"), &port.address).await.unwrap();
    // It requests the first wrapper, and gets the one of its key.
    wrapper.set(|script| script.failure_reason = "the confined one".to_owned());
    let report = call(&confined, dial, &fixture.wrapper.address).await.unwrap();
    assert_eq!(report.failure_reason, "the confined one");
    call(&confined, recipe("{{wrapper_port}}"), &port.address).await.unwrap_err();

    // The guide's statement about `-W` and a socket.
    let dashed = recipe("{{wrapper_port}}")
        .iter()
        .map(|it| it.replace("[{{wrapper_host}}]:{{wrapper_port}}", "{{wrapper_path}}"))
        .collect();
    let dashed = options(&fixture.key, dashed);
    let version = Command::new("ssh").arg("-V").output().unwrap().stderr;
    let version = String::from_utf8_lossy(&version).split(['_', ' ']).nth(1).unwrap().to_owned();
    let (major, minor) = version.split('p').next().unwrap().split_once('.').unwrap();
    if (major.parse::<u32>().unwrap(), minor.parse::<u32>().unwrap()) >= (9, 4) {
        call_with(dashed, &fixture.wrapper.address).await.unwrap();
    } else {
        let short = SshOptions {
            connect_timeout: Some(Duration::from_secs(5)),
            call_timeout: Some(Duration::from_secs(2)),
            ..dashed
        };
        let error = call_with(short, &fixture.wrapper.address).await.unwrap_err();
        let message = fixture.message(&error);
        assert!(message.contains("OpenSSH before 9.4 hangs with `-W /path/to/socket`"), "{message}");
    }
}

#[test]
fn security_guide_shows_tested_lines() {
    let guide = include_str!("../../../docs/guides/security.md");
    let socket = "/run/grit-wrapper/gitlab-runner.service.sock";
    let key = "ssh-ed25519 AAAA… deploy";
    assert!(guide.contains(&crate::deploy_user::confined(socket, key)));
    assert!(guide.contains(&crate::deploy_user::confined_to_a_program(socket, key)));
}

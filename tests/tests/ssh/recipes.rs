//! The command lines of docs/guides/ssh.md, run against stand-ins: scripts that take the arguments that the real tools are documented to
//! take, chatter on standard error as those do, and carry the connection.

use crate::{
    stub::Wrapper,
    ways::CARRY,
    world::{World, soon},
};
use grit_provider::transport::{Connector, SshOptions, StrategyOptions, Target};
use grit_tests::{program, sshd::ClientKey};
use std::{fs, process::Command, time::Duration};

const GUIDE: &str = include_str!("../../../docs/guides/ssh.md");

/// What each recipe of the guide, in its order, has to hand to its tool; what the tool says while it works; and how it works, where it does
/// more than carry.
const TOOLS: [(&str, &str, Option<&str>); 9] = [
    (
        "ssm start-session --target i-07 --document-name AWS-StartSSHSession --parameters portNumber=PORT",
        "Starting session with SessionId: deploy-0f",
        None,
    ),
    (
        "compute start-iap-tunnel runner-manager-1 PORT --listen-on-stdin --project=my-project --zone=europe-west1-b",
        "WARNING: To increase the performance of the tunnel, consider installing NumPy.",
        None,
    ),
    (
        "compute ssh deploy@runner-manager-1 --tunnel-through-iap --project=my-project --zone=europe-west1-b --quiet \
         --command=socat - UNIX-CONNECT:SOCKET",
        "WARNING: To increase the performance of the tunnel, consider installing NumPy.",
        None,
    ),
    ("proxy ssh --proxy=teleport.example.com:443 USER@HOST:PORT", "Session recorded.", None),
    (
        "connect -target-name=runner-manager-1 -target-scope-name=my-project -exec sh -- -c \
         exec nc \"$BOUNDARY_PROXIED_IP\" \"$BOUNDARY_PROXIED_PORT\"",
        "",
        // It tells about its proxy on standard output, and then runs what comes behind `--`.
        Some(
            "printf '\\nProxy listening information:\\n  Address:  HOST\\n'; while [ \"$1\" != -- ]; do shift; done; shift; \
             export BOUNDARY_PROXIED_IP=HOST BOUNDARY_PROXIED_PORT=PORT PATH=\"DIR:$PATH\"; exec sh \"$@\"",
        ),
    ),
    (
        "connect ssh -target-name=runner-manager-1 -target-scope-name=my-project -username=deploy \
         -remote-command=socat - UNIX-CONNECT:SOCKET -- -T -o BatchMode=yes",
        "",
        None,
    ),
    ("-o BatchMode=yes -W HOST:PORT jump@bastion.example.com", "Authorized use only.", None),
    ("-o BatchMode=yes -T deploy@HOST socat - UNIX-CONNECT:SOCKET", "Authorized use only.", None),
    ("-o BatchMode=yes -W WRAPPER deploy@HOST", "Authorized use only.", None),
];

/// The recipes: strategy and arguments.
fn recipes() -> Vec<(&'static str, Vec<String>)> {
    let assignments = GUIDE.lines().filter_map(|line| line.split_once(" = ["));
    let read = |list| serde_json::from_str(&format!("[{list}")).unwrap();
    assignments.map(|(name, list)| (name, read(list))).collect()
}

#[tokio::test]
async fn every_recipe_of_the_guide_carries_a_call() {
    let world = World::new();
    let port = Wrapper::tcp();
    let address = world.sshd.address();
    let socket = world.wrapper.address.trim_start_matches("unix://");
    let on_port = port.address.trim_start_matches("tcp://");
    program::script(&world.dir.path().join("nc"), &format!("exec {CARRY} tcp \"$@\"")).unwrap();
    let recipes = recipes();
    assert_eq!(recipes.len(), TOOLS.len());
    for (index, ((strategy, mut arguments), tool)) in recipes.into_iter().zip(TOOLS).enumerate() {
        let filled = |text: &str| {
            text.replace("DIR", &world.dir.path().display().to_string())
                .replace("_PORT", "_P0RT")
                .replace("PORT", &address.port().to_string())
                .replace("_P0RT", "_PORT")
                .replace("HOST", &address.ip().to_string())
                .replace("USER", &world.sshd.username())
                .replace("SOCKET", socket)
                .replace("WRAPPER", on_port)
        };
        let (wanted, chatter, work) = tool;
        let wanted = filled(wanted);
        let to_port = wanted.contains(on_port);
        let program = world.dir.path().join(format!("{index}-{}", arguments[0]));
        arguments[0] = program.display().to_string();
        let (carry, strategy) = match strategy {
            "proxy_command" => {
                (format!("tcp {} {}", address.ip(), address.port()), StrategyOptions::ProxyCommand(arguments))
            }
            "ssh_command" if to_port => {
                (format!("tcp {}", on_port.replace(':', " ")), StrategyOptions::SshCommand(arguments))
            }
            "ssh_command" => (format!("unix {socket}"), StrategyOptions::SshCommand(arguments)),
            other => panic!("{other} is no strategy with a command"),
        };
        let work = work.map_or_else(|| format!("exec {CARRY} {carry}"), filled);
        let check =
            format!("[ \"$*\" = '{wanted}' ] || {{ echo \"ERROR: unexpected arguments: $*\" >&2; exit 2; }}");
        program::script(&program, &format!("{check}\necho '{chatter}' >&2\n{work}")).unwrap();
        let options = SshOptions { strategy, ..world.options() };
        assert_eq!(options.check(), []);
        let wrapper = if to_port { &port.address } else { &world.wrapper.address };
        let target = Target {
            instance_id: Some("i-07".to_owned()),
            wrapper_address: wrapper.parse().unwrap(),
            ..world.target()
        };
        let answer = soon(Connector::new(options).client(target).check_status()).await;
        answer.unwrap_or_else(|error| panic!("{wanted}: {}", world.words(&error)));
    }
}

/// The recipes for OpenSSH, run by the real client against the real server. `socat` is on no path but that of the server's sessions.
#[tokio::test]
async fn openssh_carries_its_recipes() {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path().display().to_string();
    let socat = format!("[ \"$1\" = - ] || exit 2; exec {CARRY} unix \"${{2#UNIX-CONNECT:}}\"");
    program::script(&dir.path().join("socat"), &socat).unwrap();
    program::script(&dir.path().join("nc"), &format!("[ \"$1\" = -U ] || exit 2; exec {CARRY} unix \"$2\""))
        .unwrap();
    let confined = ClientKey::generate(dir.path(), "confined", "ed25519", "").unwrap();
    // The key may do this and nothing else, whatever it is used for.
    let socket = dir.path().join("wrapper.sock");
    let only = crate::credentials::confined_to_a_program(&socket.display().to_string(), &confined.public);
    let world = World::with(|builder| {
        builder.config(format!("SetEnv PATH={tools}:/usr/bin:/bin")).authorized_line(only)
    });
    let (port, wrapper) = (Wrapper::tcp(), Wrapper::unix(&socket));
    let recipe = |part: &str| {
        let found = recipes().into_iter().find(|(_, arguments)| {
            arguments[0] == "ssh" && arguments.iter().any(|argument| argument.contains(part))
        });
        found.unwrap().1
    };
    let call = async |key: &ClientKey, mut arguments: Vec<String>, address: &str| {
        let known = world.dir.path().join("known_hosts");
        fs::write(&known, world.sshd.known_hosts()).unwrap();
        let known = format!("UserKnownHostsFile={}", known.display());
        let (key, port) = (key.path.display().to_string(), world.sshd.address().port().to_string());
        let own = ["-F", "none", "-o", "IdentitiesOnly=yes", "-o", &known, "-i", &key, "-p", &port];
        arguments.splice(1..1, own.map(str::to_owned));
        for argument in &mut arguments {
            *argument = argument.replace("deploy@", &format!("{}@", world.sshd.username()));
        }
        let options = SshOptions {
            strategy: StrategyOptions::SshCommand(arguments),
            connect_timeout: Some(Duration::from_secs(5)),
            call_timeout: Some(Duration::from_secs(2)),
            ..SshOptions::default()
        };
        let target = Target { wrapper_address: address.parse().unwrap(), ..world.target() };
        soon(Connector::new(options).client(target).check_status()).await
    };
    let by_socat = recipe("UNIX-CONNECT");
    call(&world.key, by_socat.clone(), &world.wrapper.address).await.unwrap();
    let by_nc = by_socat.iter().map(|it| it.replace("socat - UNIX-CONNECT:", "nc -U ")).collect();
    call(&world.key, by_nc, &world.wrapper.address).await.unwrap();
    call(&world.key, recipe("{{wrapper_port}}"), &port.address).await.unwrap();
    // It asks for the first wrapper, and gets the one that its key is for.
    wrapper.set(|script| script.failure_reason = "the confined one".to_owned());
    let report = call(&confined, by_socat, &world.wrapper.address).await.unwrap();
    assert_eq!(report.failure_reason, "the confined one");
    call(&confined, recipe("{{wrapper_port}}"), &port.address).await.unwrap_err();

    // What the guide says about `-W` and a socket.
    let dashed = recipe("{{wrapper_port}}")
        .iter()
        .map(|it| it.replace("{{wrapper_host}}:{{wrapper_port}}", "{{wrapper_path}}"))
        .collect();
    let opened = call(&world.key, dashed, &world.wrapper.address).await;
    let version = Command::new("ssh").arg("-V").output().unwrap().stderr;
    let version = String::from_utf8_lossy(&version).split(['_', ' ']).nth(1).unwrap().to_owned();
    let (major, minor) = version.split('p').next().unwrap().split_once('.').unwrap();
    if (major.parse::<u32>().unwrap(), minor.parse::<u32>().unwrap()) >= (9, 4) {
        opened.unwrap();
    } else {
        let words = world.words(&opened.unwrap_err());
        assert!(words.contains("OpenSSH before 9.4 takes `-W /path/to/socket` and then hangs"), "{words}");
    }
}

#[test]
fn the_security_guide_shows_the_lines_that_are_tested() {
    let guide = include_str!("../../../docs/guides/security.md");
    let socket = "/run/grit-wrapper/wrapper.sock";
    let key = "ssh-ed25519 AAAA… deploy";
    assert!(guide.contains(&crate::credentials::confined(socket, key)));
    assert!(guide.contains(&crate::credentials::confined_to_a_program(socket, key)));
}

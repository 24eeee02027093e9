//! The command lines of docs/guides/ssh.md, run against stand-ins: scripts that take the arguments that the real tools are documented to
//! take, chatter on standard error as those do, and carry the connection.

use crate::{
    ways::CARRY,
    world::{World, soon},
};
use grit_provider::transport::{Connector, SshOptions, StrategyOptions, Target};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

const GUIDE: &str = include_str!("../../../docs/guides/ssh.md");

/// What each recipe of the guide, in its order, has to hand to its tool; and what the tool says while it works.
const TOOLS: [(&str, &str); 6] = [
    (
        "ssm start-session --target i-07 --document-name AWS-StartSSHSession --parameters portNumber=PORT",
        "Starting session with SessionId: deploy-0f",
    ),
    (
        "compute start-iap-tunnel runner-manager-1 PORT --listen-on-stdin --project=my-project --zone=europe-west1-b",
        "WARNING: To increase the performance of the tunnel, consider installing NumPy.",
    ),
    (
        "compute ssh deploy@runner-manager-1 --tunnel-through-iap --project=my-project --zone=europe-west1-b --quiet \
         --command=socat - UNIX-CONNECT:SOCKET",
        "WARNING: To increase the performance of the tunnel, consider installing NumPy.",
    ),
    ("proxy ssh --proxy=teleport.example.com:443 USER@HOST:PORT", "Session recorded."),
    ("-o BatchMode=yes -W HOST:PORT jump@bastion.example.com", "Authorized use only."),
    ("-o BatchMode=yes -T deploy@HOST socat - UNIX-CONNECT:SOCKET", "Authorized use only."),
];

/// The recipes: strategy and arguments.
fn recipes() -> Vec<(&'static str, Vec<String>)> {
    let assignments = GUIDE.lines().filter_map(|line| line.split_once(" = ["));
    let read = |list| serde_json::from_str(&format!("[{list}")).unwrap();
    assignments.map(|(name, list)| (name, read(list))).collect()
}

fn stand_in(path: &Path, wanted: &str, chatter: &str, carry: &str) {
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = '{wanted}' ] || {{ echo \"ERROR: unexpected arguments: $*\" >&2; exit 2; }}\n\
         echo '{chatter}' >&2\nexec {CARRY} {carry}\n"
    );
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn every_recipe_of_the_guide_carries_a_call() {
    let world = World::new();
    let address = world.sshd.address();
    let target = Target { instance_id: Some("i-07".to_owned()), ..world.target() };
    let socket = target.wrapper_address.to_string().trim_start_matches("unix://").to_owned();
    let recipes = recipes();
    assert_eq!(recipes.len(), TOOLS.len());
    for (index, ((strategy, mut arguments), (wanted, chatter))) in recipes.into_iter().zip(TOOLS).enumerate()
    {
        let wanted = wanted
            .replace("PORT", &address.port().to_string())
            .replace("HOST", &address.ip().to_string())
            .replace("USER", &world.sshd.username())
            .replace("SOCKET", &socket);
        let tool = world.dir.path().join(format!("{index}-{}", arguments[0]));
        arguments[0] = tool.display().to_string();
        let (carry, strategy) = match strategy {
            "proxy_command" => {
                (format!("tcp {} {}", address.ip(), address.port()), StrategyOptions::ProxyCommand(arguments))
            }
            "ssh_command" => (format!("unix {socket}"), StrategyOptions::SshCommand(arguments)),
            other => panic!("{other} is no strategy with a command"),
        };
        stand_in(&tool, &wanted, chatter, &carry);
        let options = SshOptions { strategy, ..world.options() };
        assert_eq!(options.check(), []);
        let client = Connector::new(options).client(target.clone());
        let answer = soon(client.check_status()).await;
        answer.unwrap_or_else(|error| panic!("{wanted}: {}", world.words(&error)));
    }
}

#[test]
fn the_security_guide_shows_the_line_that_is_tested() {
    let guide = include_str!("../../../docs/guides/security.md");
    let socket = "/run/grit-wrapper/grit-wrapper.sock";
    assert!(guide.contains(&crate::credentials::confined(socket, "ssh-ed25519 AAAA… deploy")));
}

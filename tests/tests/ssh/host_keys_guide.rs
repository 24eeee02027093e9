//! The scripts of docs/guides/host-keys.md with a real sshd, and stand-ins for the tools of the clouds.

use crate::fixture::{Fixture, soon};
use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, HostKeyVerdict},
};
use grit_testkit::{page, program};
use grit_tests::{
    poll,
    provider_client::{Connector, SshOptions, Target, TrustOptions},
    sshd::ClientKey,
};
use std::{fs, path::Path, process::Command, time::Duration};

const GUIDE: &str = include_str!("../../../docs/guides/host-keys.md");

/// The scripts of the guide, in order.
fn scripts() -> [&'static str; 2] {
    page::blocks(GUIDE, "sh").try_into().unwrap()
}

fn install(tools: &Path, name: &str, body: &str) {
    let head = format!("TOOLS='{}'\nfail() {{ echo \"Error: $*\" >&2; exit 2; }}\n", tools.display());
    program::script(&tools.join(name), &format!("{head}{body}")).unwrap();
}

/// Runs a script with the tools first on PATH, and returns its output.
fn run(tools: &Path, script: &str, arguments: &[&str]) -> String {
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let file = tools.join("script.sh");
    fs::write(&file, script).unwrap();
    let output = Command::new("sh").arg(file).args(arguments).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn verdict(fixture: &Fixture, trust: TrustOptions, target: Target) -> Result<(), HostKeyVerdict> {
    let client = Connector::new(SshOptions { trust, ..fixture.options() }).client(target);
    match soon(client.check_status()).await {
        Ok(_) => Ok(()),
        Err(ClientError::Transport(error)) => match error.cause {
            Cause::HostKey(refusal) => Err(refusal.verdict),
            cause => panic!("{cause:?}"),
        },
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn signed_host_key_is_trusted_from_first_connection() {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path();
    let authority = ClientKey::generate(tools, "authority", "ed25519", "").unwrap();
    let other = ClientKey::generate(tools, "other", "ed25519", "").unwrap();
    let fixture = Fixture::with(|builder| builder.config(format!("Include {}/*.conf", tools.display())));
    let address = fixture.sshd.address();
    install(tools, "vault", include_str!("tools/vault.sh"));
    install(
        tools,
        "hostname",
        &format!("[ \"$*\" = --all-ip-addresses ] && echo '{} fe80::1'\n", address.ip()),
    );

    let trust =
        |key: &ClientKey| TrustOptions { host_ca: vec![key.public.clone()], ..TrustOptions::default() };
    assert_eq!(verdict(&fixture, trust(&authority), fixture.target()).await, Err(HostKeyVerdict::Unknown));
    let key = fixture.sshd.dir().join("host_ed25519");
    let script = scripts()[0]
        .replace("/etc/ssh/ssh_host_ed25519_key", &key.display().to_string())
        .replace("/etc/ssh/sshd_config.d", &tools.display().to_string());
    let starts = || fixture.sshd.log().matches("Server listening").count();
    let before = starts();
    run(tools, &script, &[]);
    // On a host of the guide, sshd starts after the script.
    let reload = Command::new("kill").args(["-HUP", &fixture.sshd.listener().to_string()]).status();
    assert!(reload.unwrap().success());
    poll::until("sshd has read its certificate", Duration::from_secs(60), || {
        if starts() > before { Ok(()) } else { Err(fixture.sshd.log()) }
    });
    assert_eq!(verdict(&fixture, trust(&authority), fixture.target()).await, Ok(()));
    assert_eq!(verdict(&fixture, trust(&other), fixture.target()).await, Err(HostKeyVerdict::Unknown));
}

#[tokio::test]
async fn host_key_from_console_output_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path();
    let fixture = Fixture::with(|builder| builder.host_keys(&["ecdsa", "ed25519"]));
    let keys: String =
        fixture.sshd.host_keys().iter().map(|key| format!("{key} root@ip-10-0-0-7\r\n")).collect();
    let console = format!(
        "[    0.000000] Linux version 6.1.0\r\nssh-ed25519 AAAAnoise not a host key\r\n\
         -----BEGIN SSH HOST KEY KEYS-----\r\n{keys}-----END SSH HOST KEY KEYS-----\r\nlogin: \r\n"
    );
    fs::write(tools.join("console"), console).unwrap();
    install(tools, "aws", include_str!("tools/aws_console.sh"));
    install(tools, "sleep", "[ \"$*\" = 5 ]\n");

    let result: serde_json::Value = serde_json::from_str(&run(tools, scripts()[1], &["i-07"])).unwrap();
    assert!(tools.join("booted").exists(), "the first call had no key");
    assert_eq!(result, serde_json::json!({ "host_key": fixture.sshd.host_keys()[1] }));
    let host_key = result["host_key"].as_str().map(str::to_owned);
    let target = Target { host_key, ..fixture.target() };
    assert_eq!(verdict(&fixture, TrustOptions::default(), target).await, Ok(()));
}

//! Access to a provider: only the process that started it has access.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use grit_proto::tfplugin6 as pb;
use grit_testkit::program;
use grit_tests::terraform::{Client, ClientIdentity, Plugin, Workspace, built};

const NOBODY: u32 = 65534;

struct Setup {
    lab: Workspace,
    identity: ClientIdentity,
    plugin: Plugin,
}

/// A provider started as Terraform does, with or without TLS.
fn start(tls: bool) -> Setup {
    let lab = Workspace::new(&["lab"]).unwrap();
    let identity = ClientIdentity::new().unwrap();
    let certificate = tls.then_some(identity.pem.as_str());
    let plugin = Plugin::start(&lab.provider_program("lab"), &lab.tmp(), certificate).unwrap();
    Setup { lab, identity, plugin }
}

/// Whether a call succeeds. A TLS 1.3 client gets the rejection with its first call.
async fn is_served(client: Result<Client, grit_tests::terraform::ConnectError>) -> Result<(), String> {
    let mut client = client.map_err(|error| format!("{error:?}"))?;
    let answer = client.provider.get_provider_schema(pb::get_provider_schema::Request {}).await;
    answer.map(|_| ()).map_err(|status| format!("{status:?}"))
}

#[tokio::test]
async fn only_the_client_with_the_announced_certificate_is_served() {
    let setup = start(true);
    let handshake = &setup.plugin.handshake;
    let other = ClientIdentity::new().unwrap();
    let thief = ClientIdentity::new().unwrap().with_certificate_of(&setup.identity);
    for (what, client) in [
        ("no certificate", Client::connect(handshake, None).await),
        ("another certificate", Client::connect(handshake, Some(&other)).await),
        ("without its key", Client::connect(handshake, Some(&thief)).await),
        ("no TLS", Client::connect_plain(handshake).await),
    ] {
        assert!(is_served(client).await.is_err(), "{what}");
    }
    // The rejections do not affect the server.
    assert_eq!(is_served(Client::connect(handshake, Some(&setup.identity)).await).await, Ok(()));
}

/// Needs root to become another user.
#[test]
fn other_user_is_rejected_even_with_directory_access() {
    if !rustix::process::geteuid().is_root() {
        return grit_testkit::not_covered(
            "that another user is refused",
            "only root can become another user",
        );
    }
    for tls in [true, false] {
        let setup = start(tls);
        let socket = &setup.plugin.handshake.socket;
        open_up(&setup.lab.tmp());
        assert_eq!(connect_as(NOBODY, socket), "connect: PermissionDenied");
        open_up(socket);
        assert_eq!(connect_as(NOBODY, socket), "connected\nclosed", "tls: {tls}");
        // The same connection by the provider's user is accepted.
        assert_eq!(connect_as(0, socket), "connected\nstill open", "tls: {tls}");
    }
}

/// Makes `path` and its parent directories accessible for every user.
fn open_up(path: &Path) {
    let temporary = std::env::temp_dir();
    for path in path.ancestors().take_while(|path| *path != temporary && path.parent().is_some()) {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
}

fn connect_as(user: u32, socket: &Path) -> String {
    // A copy, because the build directory may be inaccessible for other users.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let knock = folder.path().join("socket-knock");
    program::copy(&built("socket-knock").unwrap(), &knock).unwrap();
    let output = Command::new(knock).arg(socket).uid(user).gid(user).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

//! The default path of the state file.

use std::{
    env, fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use tracing::warn;

use super::listen::{Address, Listener, Source};
use crate::supervise::log_key as key;

/// The directory of systemd's `RuntimeDirectory=`; several are separated by colons.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// The directory of a wrapper that runs as root. The package's units use it, too.
const ROOT_DIRECTORY: &str = "/run/grit-wrapper";

/// The state file of a wrapper without `--state-file`. `listen`: its addresses, and `opened` the sockets on them.
/// Without such a file, the log has a warning.
pub(super) fn default_state_file(listen: &[Source], opened: &[Listener]) -> Option<PathBuf> {
    if let Some(socket) = opened.iter().find_map(Listener::path) {
        return Some(with_suffix(socket));
    }
    let cause = match (tcp_address(listen, opened), directory()) {
        (None, _) => "no address of --grpc-listen is the same at each start",
        (Some(_), None) => "RUNTIME_DIRECTORY is not set, and the wrapper does not run as root",
        (Some(address), Some(folder)) => match create(&folder) {
            Ok(()) => return Some(file_in(&folder, &address)),
            Err(error) => {
                warn!(
                    { key::ERROR } = %error,
                    { key::PATH } = %folder.display(),
                    "cannot create the directory of the state file"
                );
                "its directory could not be created"
            }
        },
    };
    warn!(
        { key::REASON } = cause,
        "no state file: if this wrapper is killed, the next one does not find the runner and starts a second \
         one, and drains and callbacks are lost. Set --state-file"
    );
    None
}

fn directory() -> Option<PathBuf> {
    let of_systemd = env::var_os(RUNTIME_DIRECTORY).and_then(|value| env::split_paths(&value).next());
    let of_root = || rustix::process::geteuid().is_root().then(|| PathBuf::from(ROOT_DIRECTORY));
    of_systemd.filter(|folder| folder.is_absolute()).or_else(of_root)
}

/// Creates the directory, but none above it, if it does not exist. Whether others can write to an existing one is checked later.
fn create(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The first TCP address that the next wrapper has as well, and no other wrapper on this host: not one with a port that the kernel chose.
fn tcp_address(listen: &[Source], opened: &[Listener]) -> Option<String> {
    let passed_only = listen.iter().all(|source| matches!(source, Source::InheritedSockets(_)));
    if passed_only {
        let mut tcp = opened.iter().filter(|listener| matches!(listener, Listener::Tcp(_)));
        return tcp.next().map(ToString::to_string);
    }
    listen.iter().find_map(|source| match source {
        Source::Address(Address::Tcp(host)) if !has_any_port(host) => Some(host.clone()),
        Source::Address(_) | Source::InheritedSockets(_) => None,
    })
}

fn has_any_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.parse() == Ok(0_u16))
}

/// Two wrappers in one directory have different addresses.
fn file_in(folder: &Path, address: &str) -> PathBuf {
    with_suffix(&folder.join(format!("tcp-{address}")))
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".state");
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::listen::{self, Rules};

    fn sources(listen: &[&str]) -> Vec<Source> {
        listen.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn tcp_address_names_the_state_file() {
        for (listen, address) in [
            (&["tcp://localhost:7777"][..], Some("localhost:7777")),
            (&["tcp://127.0.0.1:0", "tcp://[::1]:7"], Some("[::1]:7")),
            // Two wrappers with this flag have different addresses, which also change at each start.
            (&["tcp://127.0.0.1:0"], None),
            (&["tcp://127.0.0.1:00", "fd://x"], None),
        ] {
            assert_eq!(tcp_address(&sources(listen), &[]).as_deref(), address, "{listen:?}");
        }
        let file = file_in(Path::new("/run/x"), "[::1]:7");
        assert_eq!(file.to_str(), Some("/run/x/tcp-[::1]:7.state"));
    }

    #[tokio::test]
    async fn socket_of_systemd_names_the_state_file() {
        let opened = listen::bind(&"tcp://127.0.0.1:0".parse().unwrap(), &Rules::default()).await.unwrap();
        let bound = opened.to_string();
        let opened = [opened];
        assert_eq!(tcp_address(&sources(&["fd://"]), &opened), Some(bound));
        assert_eq!(
            tcp_address(&sources(&["tcp://127.0.0.1:0", "fd://x"]), &opened),
            None,
            "of which socket?"
        );
    }

    #[test]
    fn only_the_last_directory_is_created() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("own");
        create(&folder).unwrap();
        create(&folder).unwrap();
        let above = create(&folder.join("a/b")).unwrap_err();
        assert_eq!(above.kind(), io::ErrorKind::NotFound);
    }
}

//! The complete error messages of the operator's commands: the cause, the next step, and the exit code.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Command, Output},
    thread,
};

use futures::stream::{self, BoxStream};
use grit_proto::{
    runner_wrapper::{
        CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
        InitGracefulShutdownRequest, InitGracefulShutdownResponse,
        process_wrapper_server::{ProcessWrapper, ProcessWrapperServer},
    },
    wrapper_v1::{
        CancelRequest, CancelResponse, DrainRequest, DrainResponse, GetStatusRequest, ListJobsRequest,
        ListJobsResponse, StartRequest, StartResponse, Status, WatchRequest,
        wrapper_server::{Wrapper as Own, WrapperServer},
    },
};
use rustix::process::Signal;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, transport::Server};

use crate::{
    support::{Start, UNRELATED_USER, as_user, eventually, is_root},
    web::ready_with,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_grit-wrapper");

fn ask(address: &str, words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).args(["--address", address]).output().unwrap()
}

/// Output and exit code of a command. Placeholders replace the values that differ from run to run.
fn report(title: &str, output: &Output, names: &[(&str, &str)]) -> String {
    let mut text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{title}");
    for (what, name) in names {
        text = text.replace(what, name);
    }
    format!("--- {title}: exit code {}\n{text}\n", output.status.code().unwrap())
}

fn at(path: &Path) -> String {
    format!("unix://{}", path.display())
}

#[tokio::test]
async fn missing_listener_errors_match_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "").unwrap();
    drop(UnixListener::bind(path("stale.sock")).unwrap());
    let full = UnixListener::bind(path("full.sock")).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _first = UnixStream::connect(path("full.sock")).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let root = folder.path().to_str().unwrap();
    let names = [(root, "/run/x"), (free.as_str(), "127.0.0.1:7777")];
    let mut text = String::new();
    for (title, address) in [
        ("no socket", at(&path("none.sock"))),
        ("no folder", at(&path("none/w.sock"))),
        ("a folder", at(folder.path())),
        ("a file", at(&path("file"))),
        ("below a file", at(&path("file/w.sock"))),
        ("a socket that is left over", at(&path("stale.sock"))),
        ("a full queue", at(&path("full.sock"))),
        ("a long path", format!("unix:///run/{}", "x".repeat(104))),
        ("a free port", format!("tcp://{free}")),
    ] {
        text += &report(title, &ask(&address, &["status"]), &names);
    }
    insta::assert_snapshot!(text);
}

/// Without root, the test removes its user's permissions, instead of connecting as another user.
#[tokio::test]
async fn permission_errors_match_snapshot() {
    let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let open = |mode| PermissionsExt::from_mode(mode);
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let socket = inner.join("w.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(folder.path(), open(0o755)).unwrap();
    fs::set_permissions(&socket, open(0o440)).unwrap();
    let ask = || {
        let (mut command, _program) = if is_root() {
            let (command, program) = as_user(UNRELATED_USER, Path::new(PROGRAM));
            (command, Some(program))
        } else {
            (Command::new(PROGRAM), None)
        };
        command.args(["status", "--address", &at(&socket)]).output().unwrap()
    };
    let names = [(folder.path().to_str().unwrap(), "/run/x")];
    let mut text = report("a socket", &ask(), &names);
    fs::set_permissions(&socket, open(0o666)).unwrap();
    fs::set_permissions(&inner, open(0o600)).unwrap();
    text += &report("a folder", &ask(), &names);
    fs::set_permissions(&inner, open(0o700)).unwrap();
    insta::assert_snapshot!(text);
}

/// Serves one connection after another, in a thread that ends with the test.
fn serve(folder: &Path, mut each: impl FnMut(&mut UnixStream) + Send + 'static) -> String {
    let socket = folder.join("w.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            each(&mut stream.unwrap());
        }
    });
    at(&socket)
}

/// The process on the address accepts connections, and is not a wrapper, or is a wrapper that exits.
#[tokio::test]
async fn other_program_is_named_by_its_address() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let closes = serve(folders[0].path(), |_| {});
    let speaks_http1 = serve(folders[1].path(), |stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
        // Until the client has read it and disconnects.
        let _end = stream.read_to_end(&mut Vec::new());
    });
    // The HTTP/2 settings; closes the connection when the client has acknowledged them.
    let breaks = serve(folders[2].path(), |stream| {
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        let (mut heard, mut byte) = (Vec::new(), [0]);
        while !heard.ends_with(&[0, 0, 0, 4, 1, 0, 0, 0, 0]) {
            stream.read_exact(&mut byte).unwrap();
            heard.extend(byte);
        }
    });
    for address in [closes, speaks_http1, breaks] {
        for command in ["status", "drain", "cancel", "start", "jobs"] {
            let output = ask(&address, &[command]);
            let text = String::from_utf8(output.stderr).unwrap();
            // Whether the failure belongs to the connection or to the call is by chance.
            assert!(
                matches!(output.status.code(), Some(1 | 2)) && text.contains(&address),
                "{command}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn wait_for_hanging_wrapper_times_out() {
    let wrapper = Start::new().child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper.signal(Signal::STOP);
    let address = at(&wrapper.path("w.sock"));
    let waits = ask(&address, &["wait", "--timeout", "200ms"]);
    wrapper.signal(Signal::CONT);
    let text = String::from_utf8(waits.stderr).unwrap();
    assert!(waits.status.code() == Some(3) && text.contains("the wrapper has not responded yet"), "{text}");
}

/// Upstream's service, and `grit.wrapper.v1` with the calls of an older version.
struct Peer;

#[tonic::async_trait]
impl ProcessWrapper for Peer {
    async fn check_status(
        &self,
        _: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, tonic::Status> {
        Ok(Response::new(CheckStatusResponse::default()))
    }

    async fn init_graceful_shutdown(
        &self,
        _: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, tonic::Status> {
        Err(tonic::Status::internal("not for this test"))
    }

    async fn init_forceful_shutdown(
        &self,
        _: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, tonic::Status> {
        Err(tonic::Status::internal("not for this test"))
    }
}

#[tonic::async_trait]
impl Own for Peer {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<Status>, tonic::Status> {
        Ok(Response::new(Status { wrapper_version: "0.0.9".to_owned(), ..Status::default() }))
    }

    async fn watch(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<BoxStream<'static, Result<Status, tonic::Status>>>, tonic::Status> {
        Ok(Response::new(Box::pin(stream::pending())))
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Result<Response<DrainResponse>, tonic::Status> {
        Err(tonic::Status::permission_denied("this user has read-only access"))
    }

    async fn cancel(&self, _: Request<CancelRequest>) -> Result<Response<CancelResponse>, tonic::Status> {
        Err(tonic::Status::failed_precondition("no drain is in progress"))
    }

    async fn start(&self, _: Request<StartRequest>) -> Result<Response<StartResponse>, tonic::Status> {
        Err(tonic::Status::unimplemented(""))
    }

    async fn list_jobs(
        &self,
        _: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, tonic::Status> {
        Err(tonic::Status::unimplemented(""))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn other_server_errors_match_snapshot() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let names = folders.each_ref().map(|folder| (folder.path().to_str().unwrap(), "/run/x"));
    let sockets = folders.each_ref().map(|folder| folder.path().join("w.sock"));
    let listener = |at: usize| UnixListenerStream::new(tokio::net::UnixListener::bind(&sockets[at]).unwrap());
    let (_, health) = tonic_health::server::health_reporter();
    let upstream = Server::builder().add_service(ProcessWrapperServer::new(Peer));
    let older = Server::builder().add_service(WrapperServer::new(Peer));
    tokio::spawn(upstream.serve_with_incoming(listener(0)));
    tokio::spawn(older.serve_with_incoming(listener(1)));
    tokio::spawn(Server::builder().add_service(health).serve_with_incoming(listener(2)));
    let [upstream, older, other] = sockets.each_ref().map(|socket| at(socket));
    let mut text = String::new();
    for (title, address, command) in [
        ("upstream's wrapper", &upstream, "status"),
        ("upstream's wrapper", &upstream, "wait"),
        ("an older wrapper", &older, "jobs"),
        ("another gRPC server", &other, "drain"),
        ("no right", &older, "drain"),
        ("not now", &older, "cancel"),
    ] {
        text += &report(&format!("{title}, {command}"), &ask(address, &[command]), &names);
    }
    insta::assert_snapshot!(text);
}

/// Exit code 2 means that the wrapper cannot be reached, so that a script can retry. An invalid command line has another code.
#[test]
fn command_line_errors_exit_1() {
    let code = |words: &[&str]| {
        let output = Command::new(PROGRAM).args(words).env_remove("GRIT_WRAPPER_ADDRESS").output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for words in [
        &["status", "--address", "somewhere"][..],
        &["status", "--address", "fd://"],
        &["drain", "--forse"],
        &["drain", "--timeout", "1h"],
        &["wait", "--for", "godot"],
    ] {
        let (code, text) = code(words);
        assert!(code == 1 && text.starts_with("error: "), "{words:?}: {code}: {text}");
    }
    assert_eq!(code(&["run", "--forse"]).0, 2, "as documented for `run`");
    assert_eq!(code(&["drain", "--help"]).0, 0);
    let (_, text) = code(&["status", "--address", "/run/w.sock"]);
    assert!(text.contains("a path needs a scheme"), "{text}");
}

#[tokio::test]
async fn wait_reports_lost_wrapper_and_reconnects_to_next() {
    let (mut wrapper, _url) = ready_with(&[], &[]).await;
    let errors = wrapper.path("errors");
    let mut waits = Command::new(PROGRAM)
        .args(["wait", "--address", &at(&wrapper.path("w.sock"))])
        .stderr(fs::File::create(&errors).unwrap())
        .stdout(fs::File::create(wrapper.path("answer")).unwrap())
        .spawn()
        .unwrap();
    let says = async |text: &str| {
        eventually(text, async || {
            let errors = fs::read_to_string(&errors).unwrap();
            if errors.contains(text) { Ok(()) } else { Err(errors) }
        })
        .await;
    };
    eventually("it is connected", async || {
        let sockets = crate::sockets::socket_inodes(waits.id());
        if sockets.len() > 1 { Ok(()) } else { Err(sockets) }
    })
    .await;
    // No output shows its first status.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    says("lost the connection to the wrapper; reconnecting").await;
    let wrapper = Start::again(wrapper.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    says("reconnected to the wrapper").await;
    wrapper.client().await.graceful().await;
    let code = eventually("the wait ends", async || waits.try_wait().unwrap().ok_or("running")).await;
    // The exit code of the runner of a killed wrapper, if that still drains, is unknown, which is not a success.
    let expected = if wrapper.read("answer").contains("\noutcome    clean") { 0 } else { 4 };
    assert_eq!(code.code(), Some(expected));
    assert!(wrapper.read("answer").starts_with("state      stopped\n"), "{}", wrapper.read("answer"));
}

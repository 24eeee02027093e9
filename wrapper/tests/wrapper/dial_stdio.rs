//! `dial-stdio` between pipes and a socket.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Instant,
};

use rustix::process::{Signal, kill_process};

use crate::support::{LIMIT, pid};

/// A running `dial-stdio`, and the server's end of its connection.
struct Dialed {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    server: UnixStream,
    _folder: tempfile::TempDir,
}

impl Dialed {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("w.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"))
            .args(["dial-stdio", "--address", &format!("unix://{}", socket.display())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let server = listener.accept().unwrap().0;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        Self { process, stdin, stdout, server, _folder: folder }
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            match self.process.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(start.elapsed() < LIMIT, "dial-stdio runs"),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for Dialed {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// The server responds after the end of stdin, with more data than a socket buffers.
#[test]
fn dial_stdio_ends_one_direction_with_stdin() {
    let mut dialed = Dialed::start();
    let text: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let (mut stdin, mut stdout) = (dialed.stdin.take().unwrap(), dialed.stdout.take().unwrap());
    let mut server = dialed.server.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(&text).unwrap();
            drop(stdin);
        });
        scope.spawn(|| {
            let mut received = Vec::new();
            server.read_to_end(&mut received).unwrap();
            server.write_all(&received).unwrap();
            server.shutdown(Shutdown::Both).unwrap();
        });
        let mut returned = Vec::new();
        stdout.read_to_end(&mut returned).unwrap();
        assert!(returned == text, "{} of {} bytes", returned.len(), text.len());
    });
    assert_eq!(dialed.ended().code(), Some(0));
}

#[test]
fn dial_stdio_exits_if_server_closes_connection() {
    let mut dialed = Dialed::start();
    dialed.server.write_all(b"bye").unwrap();
    dialed.server.shutdown(Shutdown::Both).unwrap();
    let mut text = String::new();
    dialed.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), dialed.ended().code()), ("bye", Some(0)));
}

/// sshd closes both pipes if its client is gone. The wrapper may hang at this time.
#[test]
fn dial_stdio_exits_if_stdout_is_closed() {
    let mut dialed = Dialed::start();
    drop((dialed.stdin.take(), dialed.stdout.take()));
    assert_eq!(dialed.ended().code(), Some(0));
}

#[test]
fn dial_stdio_exits_1_if_connection_is_reset() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"))
        .args(["dial-stdio", "--address", &format!("tcp://{}", listener.local_addr().unwrap())])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let (server, _) = listener.accept().unwrap();
    stdin.write_all(b"unread").unwrap();
    server.peek(&mut [0]).unwrap();
    // A connection that is closed with unread data is reset.
    drop(server);
    let output = process.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("was interrupted: Connection reset by peer"), "{stderr}");
}

/// A stopped and continued process has lost no data, also if a signal interrupted a call.
#[test]
fn dial_stdio_continues_after_sigstop() {
    let mut dialed = Dialed::start();
    let process = pid(dialed.process.id());
    for round in 0..3_u8 {
        kill_process(process, Signal::STOP).unwrap();
        dialed.stdin.as_mut().unwrap().write_all(&[round]).unwrap();
        kill_process(process, Signal::CONT).unwrap();
        let mut byte = [0];
        dialed.server.read_exact(&mut byte).unwrap();
        dialed.server.write_all(&byte).unwrap();
        dialed.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(byte, [round]);
    }
}

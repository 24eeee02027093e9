//! The lifecycle of a runner, from its start to its exit.

use std::{collections::BTreeSet, fs};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainRequest, GetStatusRequest, StartRequest, State},
};
use rustix::process::{Signal, kill_process};

use crate::support::{Start, Wrapper, eventually, is_alive, pid};

/// No start grace: these children record when they are ready.
fn quick() -> Start {
    Start::new().flags(&["--start-grace=0s"])
}

#[tokio::test]
async fn graceful_shutdown_waits_for_jobs() {
    let wrapper = quick().child(&["--jobs-take", "1000"]);
    let mut client = wrapper.client().await;
    wrapper.child_ready().await;
    assert_eq!(client.graceful().await, Status::InShutdown);
    assert_eq!(client.graceful().await, Status::InShutdown);
    assert_eq!(client.becomes(Status::Stopped).await, "");
    assert_eq!(wrapper.record(), "ready QUIT");
}

#[tokio::test]
async fn repeated_forceful_shutdown_sends_one_sigterm() {
    let wrapper = quick().flags(&["--process-termination-timeout=2s"]).child(&["--ignore-term"]);
    let mut client = wrapper.client().await;
    wrapper.child_ready().await;
    assert_eq!(client.forceful().await, Status::InShutdown);
    assert_eq!(client.forceful().await, Status::InShutdown);
    assert_eq!(client.graceful().await, Status::InShutdown);
    let reason = client.becomes(Status::Stopped).await;
    assert_eq!(reason, "signal: killed: the runner did not exit in time after SIGTERM");
    assert_eq!(wrapper.record(), "ready TERM");
}

/// Executes its arguments without the system call pidfd_open, as under a `SystemCallFilter=`.
const WITHOUT_PIDFD_OPEN: &str = "
import ctypes, os, struct, sys
NR_PIDFD_OPEN, ERRNO_EPERM, ALLOW = 434, 0x50001, 0x7fff0000
load_number, is_equal, result = 0x20, 0x15, 0x06
instructions = [(load_number, 0, 0, 0), (is_equal, 0, 1, NR_PIDFD_OPEN), (result, 0, 0, ERRNO_EPERM), (result, 0, 0, ALLOW)]
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in instructions))
program = ctypes.create_string_buffer(struct.pack('HP', len(instructions), ctypes.addressof(filter)))
prctl = ctypes.CDLL(None).prctl
NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2
assert prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and prctl(SECCOMP, FILTER, ctypes.byref(program)) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[tokio::test]
async fn runner_without_pidfd_is_killed_and_reaped() {
    let wrapper = quick().through(&["python3", "-c", WITHOUT_PIDFD_OPEN]).child(&[]);
    wrapper.logged("cannot start the runner").await;
    let tasks = format!("/proc/{}/task", wrapper.pid());
    eventually("no child is left", async || {
        let tasks = fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path().join("children"));
        let children: String = tasks.map(|list| fs::read_to_string(list).unwrap_or_default()).collect();
        if children.is_empty() { Ok(()) } else { Err(children) }
    })
    .await;
    let (status, reason) = wrapper.client().await.status().await;
    assert_eq!((status, wrapper.record().as_str()), (Status::Stopped, ""), "{reason}");
    assert!(reason.contains("Operation not permitted"), "{reason}");
}

/// Go's runtime catches every signal from its start, so a signal handler does not prove that the program is ready.
#[tokio::test]
async fn sigquit_waits_for_start_grace() {
    let wrapper = Start::new().flags(&["--start-grace=1s"]).child(&[]);
    let mut client = wrapper.client().await;
    wrapper.child_ready().await;
    let asked = std::time::Instant::now();
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    assert_eq!(wrapper.record(), "ready QUIT");
    assert!(asked.elapsed().as_millis() > 300, "{:?}", asked.elapsed());
}

async fn grandchild(wrapper: &Wrapper) -> u32 {
    let path = wrapper.path("grandchild");
    eventually("the grandchild", async || fs::read_to_string(&path).unwrap_or_default().parse::<u32>()).await
}

fn with_grandchild(habits: &[&str]) -> Wrapper {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grandchild").to_str().unwrap().to_owned();
    let mut all = vec!["--grandchild", path.as_str()];
    all.extend(habits);
    Start::again(folder).flags(&["--start-grace=0s", "--process-termination-timeout=1s"]).child(&all)
}

#[tokio::test]
async fn forceful_shutdown_kills_whole_process_group() {
    for habits in [&[][..], &["--ignore-term"]] {
        let wrapper = with_grandchild(habits);
        let mut client = wrapper.client().await;
        wrapper.child_ready().await;
        let grandchild = grandchild(&wrapper).await;
        client.forceful().await;
        client.becomes(Status::Stopped).await;
        eventually("the grandchild dies", async || if is_alive(grandchild) { Err("lives") } else { Ok(()) })
            .await;
    }
}

#[tokio::test]
async fn graceful_exit_reports_remaining_group_processes() {
    let wrapper = with_grandchild(&[]);
    let mut client = wrapper.client().await;
    wrapper.child_ready().await;
    let grandchild = grandchild(&wrapper).await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    wrapper.logged("a process of the runner is still running after the runner exited").await;
    assert!(is_alive(grandchild));
    rustix::process::kill_process_group(pid(wrapper.child_pid()), Signal::KILL).unwrap();
}

#[tokio::test]
async fn output_is_passed_through_and_stdin_is_empty() {
    let bytes = 3_000_017;
    let mut wrapper = Start::new().flags(&["--when-stopped=exit"]).child(&[
        "--flood",
        &bytes.to_string(),
        "--read-stdin",
        "--exit-after",
        "0",
    ]);
    assert_eq!(wrapper.ended().await.code(), Some(0));
    let out = fs::read(wrapper.path("out")).unwrap();
    assert_eq!(out.len(), bytes);
    assert!(out.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
    assert_eq!(wrapper.record(), "stdin 0 ready");
}

#[tokio::test]
async fn unexpected_exit_reports_stopped_with_reason() {
    let wrapper = Start::new().child(&["--exit-after", "0", "--code", "7"]);
    let mut client = wrapper.client().await;
    assert_eq!(client.becomes(Status::Stopped).await, "exit status 7");
    let mut wrapper = wrapper;
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(7), "the wrapper says how the runner ended");
}

/// An engine would start the container again, while Terraform still needs the drained runner to be without a successor.
#[tokio::test]
async fn drain_of_client_is_no_reason_to_exit() {
    let flags = ["--start-grace=0s", "--when-stopped=exit"];
    let mut first = Start::new().flags(&flags).child(&[]);
    first.child_ready().await;
    let drain = DrainRequest { id: "deploy-7".to_owned(), ..DrainRequest::default() };
    let mut client = first.v1_client().await;
    client.drain(drain.clone()).await.unwrap();
    eventually("the runner has exited", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.state() == State::Stopped { Ok(()) } else { Err(status) }
    })
    .await;
    // Each request is a transition, after which a wrapper could exit.
    client.drain(drain.clone()).await.unwrap();
    assert!(first.runs(), "{}", first.read("log"));
    first.signal(Signal::TERM);
    assert_eq!(first.ended().await.code(), Some(0), "{}", first.read("log"));

    let mut second = Start::again(first.into_folder()).flags(&flags).child(&[]);
    let mut client = second.v1_client().await;
    client.drain(drain).await.unwrap();
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.shutting_down), (State::Stopped, false), "{status:?}");
    assert_eq!(status.drain.unwrap().id, "deploy-7");
    assert!(second.runs(), "{}", second.read("log"));
    assert_eq!(second.record(), "ready QUIT", "a drained runner was started");

    client.start(StartRequest {}).await.unwrap();
    second.recorded("ready QUIT ready").await;
    kill_process(pid(second.child_pid()), Signal::KILL).unwrap();
    assert_eq!(second.ended().await.code(), Some(137), "{}", second.read("log"));

    // No client has drained the last runner.
    let third = Start::again(second.into_folder()).flags(&flags).child(&[]);
    third.recorded("ready QUIT ready ready").await;
}

#[tokio::test]
async fn exit_code_reflects_runner_exit() {
    for (words, flags, code) in [
        (&["sh", "-c", "exit 41"][..], &["--when-stopped=exit"][..], 41),
        (&["sh", "-c", "kill -9 $$"], &["--when-stopped=exit"], 137),
        (&["no-such-command"], &[], 127),
        (&["/etc/passwd"], &[], 126),
        (&["true"], &["--grpc-listen=unix:///no/such/folder/w.sock"], 125),
        (&["true"], &["--socket-group=no-such-group"], 125),
        (&["true"], &["--start-grace=soon"], 2),
    ] {
        let mut wrapper = Start::new().flags(flags).command(words);
        assert_eq!(wrapper.ended().await.code(), Some(code), "{words:?} {flags:?}: {}", wrapper.read("log"));
    }
}

/// The C library would pass each of these to /bin/sh.
#[tokio::test]
async fn non_executable_format_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    // A program for a CPU that no test uses (ELF machine 2, SPARC), and a script without a `#!` line.
    let mut foreign = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
    foreign[18..20].copy_from_slice(&2_u16.to_ne_bytes());
    for (name, text) in [("foreign", foreign), ("script", b"echo ran > ran\n".to_vec())] {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut wrapper = Start::new().command(&[file.to_str().unwrap()]);
        assert_eq!(wrapper.ended().await.code(), Some(126), "{name}: {}", wrapper.read("log"));
        let log = wrapper.read("log");
        assert!(log.contains("Exec format error") && !log.contains("runner started"), "{log}");
    }
}

/// The requirements of a host: a C library with its loader.
#[tokio::test]
async fn wrapper_links_only_libc_dynamically() {
    let wrapper = Start::new().child(&[]);
    drop(wrapper.client().await);
    let maps = fs::read_to_string(format!("/proc/{}/maps", wrapper.pid())).unwrap();
    let libraries: BTreeSet<_> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5)?.rsplit('/').next())
        .filter(|name| name.contains(".so"))
        .filter(|name| !["libc", "libm", "ld-"].iter().any(|known| name.starts_with(known)))
        .collect();
    assert!(libraries.is_empty(), "{libraries:?}");
}

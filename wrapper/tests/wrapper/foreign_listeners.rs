//! Processes that are not the runner, such as jobs, and listen where the wrapper expects the runner's HTTP server.

use std::{
    fs,
    io::Write as _,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command},
};

use grit_proto::wrapper_v1::{DrainOutcome, DrainRequest, GetStatusRequest, Level, ListJobsRequest, State};
use tempfile::TempDir;
use tonic::Code;

use crate::{
    health_levels::{CONFIG, Runner, VERSION, becomes, polls},
    sockets::free_port,
    support::{Start, UNRELATED_USER, as_user, eventually, is_root, misbehaving_child, processes_of},
};

const FLAGS: [&str; 2] = ["--start-grace=0s", "--probe-interval=100ms"];

/// A wrapper in a directory with this configuration.
fn start(config: &str) -> Start {
    let start = Start::new().flags(&FLAGS);
    let path = start.folder_path().join("config.toml");
    fs::write(&path, config).unwrap();
    start.env("CONFIG_FILE", path.to_str().unwrap())
}

/// Pages of a runner whose sections all poll, and which has one job.
async fn polling(version: &str) -> Runner {
    let runner = Runner::new().await;
    let polls = polls("aaaaaaaaa", 204, 1) + &polls("bbbbbbbbb", 204, 1);
    runner.says("/metrics", 200, &(VERSION.replace("19.2.0", version) + &polls));
    runner.says("/debug/jobs/list", 200, &format!("url={JOB} state=running duration=1s\n"));
    runner
}

const JOB: &str = "https://gitlab.example/group/project/-/jobs/17";

/// A process of another user that listens on `address` with these pages.
struct Squatter {
    process: Child,
    _program: TempDir,
}

impl Squatter {
    /// `None` without root.
    async fn new(address: &str, pages: &Runner) -> Option<Self> {
        if !is_root() {
            grit_testkit::not_covered("a listener of another user", "this is not root");
            return None;
        }
        let (mut command, program) = as_user(UNRELATED_USER, &misbehaving_child());
        command.args(["--lives-with", &std::process::id().to_string(), "--listen-address", address]);
        let process = command.arg("--http-backend").arg(&pages.backend).spawn().unwrap();
        let squatter = Self { process, _program: program };
        eventually("the other process listens", async || TcpStream::connect(address)).await;
        Some(squatter)
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn used_by(port: u16, process: u32) -> String {
    format!("port {port} of 127.0.0.1 is used by process {process} (")
}

/// The runner of this name listens on 127.0.0.1 only, and the name has both addresses.
#[tokio::test]
async fn runner_on_localhost_is_found_beside_a_job_on_ipv6() {
    let port = free_port();
    let forged = polling("9.9.9").await;
    let Some(_job) = Squatter::new(&format!("[::1]:{port}"), &forged).await else { return };
    let runner = polling("19.2.0").await;
    let rejected = VERSION.to_owned() + &polls("aaaaaaaaa", 403, 1) + &polls("bbbbbbbbb", 403, 1);
    runner.says("/metrics", 200, &rejected);

    let start = start(CONFIG);
    let hosts = start.folder_path().join("hosts");
    fs::write(&hosts, "::1 localhost\n127.0.0.1 localhost\n").unwrap();
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let wrapper = start
        .through(&["unshare", "--mount", "sh", "-c", script, hosts.to_str().unwrap()])
        .runner(&runner)
        .env("LISTEN_ADDRESS", &format!("localhost:{port}"))
        .child(&["--listen-address", &format!("127.0.0.1:{port}")]);
    let health = becomes(&mut wrapper.v1_client().await, Level::Ready, "GitLab rejects its token").await;
    assert_eq!(health.runner_version.as_deref(), Some("19.2.0"), "{health:?}");
}

/// The runner has no listener: a real one would exit, because its port is in use.
#[tokio::test]
async fn answers_of_another_process_are_ignored() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let forged = polling("9.9.9").await;
    let Some(job) = Squatter::new(&address, &forged).await else { return };
    let config = format!("listen_address = \"{address}\"\n{CONFIG}");
    let wrapper = start(&config).child(&["--jobs-take", "2000"]);
    wrapper.child_ready().await;
    let mut client = wrapper.v1_client().await;
    let health = becomes(&mut client, Level::Process, &used_by(port, job.pid())).await;
    let reason = health.reasons.join("; ");
    assert!(reason.contains(&format!("not by the runner (process {})", wrapper.child_pid())), "{reason}");
    assert_eq!((health.runner_version, health.jobs, health.process_state), (None, None, None));
    assert_eq!((health.oldest_job, health.jobs_succeeded), (None, None));
    let refused = client.list_jobs(ListJobsRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);

    // Neither its jobs nor its process state have an effect on a drain.
    let page = "gitlab_runner_process_state_info{state=\"forceful-shutdown\"} 1\n";
    forged.says("/metrics", 200, &(VERSION.to_owned() + page));
    let drain = DrainRequest { id: "d".to_owned(), job_url: JOB.to_owned(), ..DrainRequest::default() };
    client.drain(drain).await.unwrap();
    let status = eventually("the runner exits", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.state() == State::Stopped { Ok(status) } else { Err(status) }
    })
    .await;
    assert_eq!(status.drain.unwrap().outcome(), DrainOutcome::Clean);
    // Without a runner, all responses are those of another process.
    let refused = client.list_jobs(ListJobsRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
}

/// A job is a descendant of the runner, and may have its name and its command line.
#[tokio::test]
async fn job_of_the_runner_is_not_the_runner() {
    let port = free_port();
    let forged = polling("9.9.9").await;
    let start = start(CONFIG).runner(&forged).env("LISTEN_ADDRESS", &format!("127.0.0.1:{port}"));
    let runner = executable(&start.folder_path().join("gitlab-runner"), "#!/bin/sh\n\"$@\" &\nwait\n");
    let job = misbehaving_child();
    let record = start.folder_path().join("record");
    let test = std::process::id().to_string();
    let words = [&runner, job.to_str().unwrap(), "--lives-with", &test, "--record", record.to_str().unwrap()];
    let wrapper = start.command(&words);
    let mut client = wrapper.v1_client().await;
    let health = becomes(&mut client, Level::Process, "not by the runner").await;
    let is_job =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("misbehaving");
    let job = processes_of(wrapper.folder.path()).into_iter().find(is_job).unwrap();
    let reason = health.reasons.join("; ");
    assert!(reason.contains(&used_by(port, job)) && reason.contains("start it with `exec`"), "{reason}");
    assert_eq!(health.runner_version, None);
}

/// The runner listens on both families, and one of them does not exist on this host.
#[tokio::test]
async fn wildcard_address_is_reached_without_ipv6() {
    if !is_root() {
        return grit_testkit::not_covered("a host without IPv6", "this is not root");
    }
    let runner = polling("19.2.0").await;
    let script = "ip link set lo up && for scope in all default lo; do
        echo 1 >/proc/sys/net/ipv6/conf/$scope/disable_ipv6 || exit; done; exec \"$@\"";
    for address in ["[::]:9252", ":9252", "0.0.0.0:9252"] {
        let wrapper = start(CONFIG)
            .through(&["unshare", "--net", "sh", "-c", script, "sh"])
            .runner(&runner)
            .env("LISTEN_ADDRESS", address)
            .child(&["--listen-address", "[::]:9252"]);
        let health = becomes(&mut wrapper.v1_client().await, Level::Polling, "").await;
        assert_eq!(health.jobs, Some(1), "{address}: {health:?}");
    }
}

#[tokio::test]
async fn wildcard_address_is_reached_over_ipv6_only() {
    let runner = polling("19.2.0").await;
    let port = free_port();
    let wrapper = start(CONFIG)
        .runner(&runner)
        .env("LISTEN_ADDRESS", &format!(":{port}"))
        .child(&["--listen-address", &format!("[::1]:{port}")]);
    becomes(&mut wrapper.v1_client().await, Level::Polling, "").await;
}

/// The kernel shows the descriptors of a program that its user may not read to root only.
#[tokio::test]
async fn unreadable_runner_is_probed_without_the_check() {
    if !is_root() {
        return grit_testkit::not_covered("a wrapper of another user", "this is not root");
    }
    let runner = polling("19.2.0").await;
    let (_, program) = as_user(UNRELATED_USER, env!("CARGO_BIN_EXE_grit-wrapper").as_ref());
    let (_, child) = as_user(UNRELATED_USER, &misbehaving_child());
    fs::set_permissions(child.path().join("program"), PermissionsExt::from_mode(0o711)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let user = UNRELATED_USER.parse().ok();
    std::os::unix::fs::chown(folder.path(), user, user).unwrap();
    let config = folder.path().join("config.toml");
    fs::write(&config, CONFIG).unwrap();
    let user = ["setpriv", "--reuid", UNRELATED_USER, "--regid", UNRELATED_USER, "--clear-groups"];
    let wrapper = program.path().join("program");
    let script = "shift; exec \"$0\" \"$@\"";
    let through = [&user[..], &["sh", "-c", script, wrapper.to_str().unwrap()]].concat();
    let start = Start::again(folder).flags(&FLAGS).through(&through).runner(&runner);
    let start = start.env("CONFIG_FILE", config.to_str().unwrap());
    let test = std::process::id().to_string();
    let child = child.path().join("program");
    let wrapper = start.command(&[child.to_str().unwrap(), "--lives-with", &test]);
    let mut client = wrapper.v1_client().await;
    becomes(&mut client, Level::Polling, "").await;
    assert!(!can_read(wrapper.child_pid()), "the test shows nothing");
}

/// Whether [`UNRELATED_USER`] sees the descriptors of this process.
fn can_read(process: u32) -> bool {
    let user = ["--reuid", UNRELATED_USER, "--regid", UNRELATED_USER, "--clear-groups"];
    let list = Command::new("setpriv").args(user).args(["ls", &format!("/proc/{process}/fd")]).output();
    list.unwrap().status.success()
}

/// Written by another process: a child that is forked during the write would keep the file open, so that it could not be executed.
fn executable(path: &Path, text: &str) -> String {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod +x \"$0\""]).arg(path).stdin(std::process::Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    path.to_str().unwrap().to_owned()
}

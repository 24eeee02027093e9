//! Starts wrappers and calls them.

use std::{
    fmt::Debug,
    fs::{self, File},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use grit_proto::{
    runner_wrapper::{
        CheckStatusRequest, InitForcefulShutdownRequest, InitGracefulShutdownRequest, ShutdownCallback,
        Status, process_wrapper_client::ProcessWrapperClient,
    },
    wrapper_v1::wrapper_client::WrapperClient,
};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::health_levels::Runner;

/// The time limit of each wait. A passing test does not depend on it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A wrapper with a separate directory. Dropping it kills the wrapper and its child.
pub(crate) struct Wrapper {
    process: Child,
    pub(crate) folder: TempDir,
}

/// The child whose behaviour the tests choose.
pub(crate) fn misbehaving_child() -> PathBuf {
    static CHILD: LazyLock<PathBuf> = LazyLock::new(|| example("misbehaving_child"));
    CHILD.clone()
}

/// The program with many clients.
pub(crate) fn many_clients() -> PathBuf {
    static CROWD: LazyLock<PathBuf> = LazyLock::new(|| example("crowd"));
    CROWD.clone()
}

/// `cargo test` builds them with all targets; `cargo test --test wrapper` alone does not.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.rs"));
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    // A missing file is older than any other.
    if changed(&example) < changed(&source) {
        let build = ["build", "--quiet", "-p", "grit-wrapper", "--example", name];
        assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    }
    assert!(example.exists(), "{example:?} is missing: cargo build -p grit-wrapper --examples");
    example
}

pub(crate) struct Start {
    folder: TempDir,
    flags: Vec<String>,
    env: Vec<(String, String)>,
    listen: bool,
    through: Vec<String>,
    stderr: Option<OwnedFd>,
}

impl Start {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            flags: Vec::new(),
            env: Vec::new(),
            listen: true,
            through: Vec::new(),
            stderr: None,
        }
    }

    /// Where its files will be.
    pub(crate) fn folder_path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// In the directory of a previous wrapper, as after a restart of the service.
    pub(crate) fn again(folder: TempDir) -> Self {
        Self { folder, ..Self::new() }
    }

    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The child has this HTTP server.
    pub(crate) fn runner(self, runner: &Runner) -> Self {
        self.env("LISTEN_ADDRESS", &runner.address).env("HTTP_BACKEND", runner.backend.to_str().unwrap())
    }

    /// Started by another program, which becomes the wrapper by exec.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Writes its log here, not to the directory.
    pub(crate) fn stderr(mut self, stderr: OwnedFd) -> Self {
        self.stderr = Some(stderr);
        self
    }

    /// Leaves `--grpc-listen` to the flags.
    pub(crate) fn without_socket(mut self) -> Self {
        self.listen = false;
        self
    }

    /// Runs the misbehaving child, which records into `record`.
    pub(crate) fn child(self, habits: &[&str]) -> Wrapper {
        let record = self.folder.path().join("record").to_str().unwrap().to_owned();
        let child = misbehaving_child().to_str().unwrap().to_owned();
        let test = std::process::id().to_string();
        let mut words = vec![child.as_str(), "--record", &record, "--lives-with", &test];
        words.extend(habits);
        self.command(&words)
    }

    pub(crate) fn command(self, words: &[&str]) -> Wrapper {
        let folder = self.folder;
        let stderr = self.stderr.map_or_else(
            || {
                Stdio::from(
                    File::options().create(true).append(true).open(folder.path().join("log")).unwrap(),
                )
            },
            Stdio::from,
        );
        let out = File::create(folder.path().join("out")).unwrap();
        let mut before = self.through;
        before.push(env!("CARGO_BIN_EXE_grit-wrapper").to_owned());
        let mut command = Command::new(&before[0]);
        // As of a service; a wrapper without a unix socket has its state file here.
        command
            .args(&before[1..])
            .arg("run")
            .env("RUNTIME_DIRECTORY", folder.path())
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(stderr);
        if self.listen {
            command.arg(format!("--grpc-listen=unix://{}", folder.path().join("w.sock").display()));
        }
        let process = command.args(self.flags).arg("--").args(words).spawn().unwrap();
        Wrapper { process, folder }
    }
}

impl Wrapper {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Lets other users reach the socket, as far as its own mode allows.
    pub(crate) fn open_folder(&self) {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(self.folder.path(), open).unwrap();
    }

    /// The child's record, split into words.
    pub(crate) fn record(&self) -> String {
        self.read("record").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(self.pid()), signal).unwrap();
    }

    /// A client of upstream's API, once the wrapper listens.
    pub(crate) async fn client(&self) -> Client {
        let socket = self.path("w.sock");
        eventually("the wrapper listens", async || {
            unix_client(&socket).await.map_err(|error| error.to_string())
        })
        .await
    }

    /// A client of `grit.wrapper.v1`.
    pub(crate) async fn v1_client(&self) -> WrapperClient<Channel> {
        drop(self.client().await);
        WrapperClient::new(unix_channel(&self.path("w.sock")).await.unwrap())
    }

    /// Waits until the child has recorded that it is ready, and the wrapper has logged its start.
    pub(crate) async fn child_ready(&self) {
        self.logged("runner started").await;
        self.recorded("ready").await;
    }

    /// Waits until the child has recorded exactly this.
    pub(crate) async fn recorded(&self, wanted: &str) {
        eventually("the child's record", async || {
            let record = self.record();
            if record == wanted { Ok(()) } else { Err(record) }
        })
        .await;
    }

    /// Waits for a line of the log that contains `text`.
    pub(crate) async fn logged(&self, text: &str) {
        eventually(text, async || {
            let log = self.read("log");
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// The wrapper's child, from its log. Waits for the line: a fast child is ready before the wrapper has logged the start.
    pub(crate) fn child_pid(&self) -> u32 {
        let start = Instant::now();
        loop {
            let log = self.read("log");
            if let Some(line) = log.lines().rfind(|line| line.contains("runner started")) {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                return u32::try_from(line["pid"].as_u64().unwrap()).unwrap();
            }
            assert!(start.elapsed() < LIMIT, "no child: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the wrapper has exited.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let process = &mut self.process;
        eventually("the wrapper ends", async || process.try_wait().unwrap().ok_or("running")).await
    }

    /// Whether it is running.
    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// The directory, after the wrapper has exited.
    pub(crate) fn into_folder(mut self) -> TempDir {
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    /// The wrapper, which the caller must reap, and the directory.
    pub(crate) fn into_parts(mut self) -> (Child, TempDir) {
        let nothing = Command::new("true").spawn().unwrap();
        let process = std::mem::replace(&mut self.process, nothing);
        (process, std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap()))
    }
}

impl Drop for Wrapper {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
        // A runner that ignores SIGQUIT keeps running after its wrapper, and one may just be starting.
        while let Some(left) = processes_of(self.folder.path()).first() {
            let _gone = rustix::process::kill_process_group(pid(*left), Signal::KILL);
            // A process that is not the leader of a group.
            let _gone = kill_process(pid(*left), Signal::KILL);
            std::thread::sleep(Duration::from_millis(1));
        }
        if std::thread::panicking() {
            eprintln!("--- log\n{}--- record\n{}", self.read("log"), self.read("record"));
        }
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A UID; the user does not have to exist on this machine.
pub(crate) const UNRELATED_USER: &str = "4242";

/// A program that runs as another user, which requires root. That user may not be able to read a path below /root, so the program is
/// copied to the directory.
pub(crate) fn as_user(user: &str, program: &Path) -> (Command, TempDir) {
    let open = || std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let folder = tempfile::Builder::new().permissions(open()).tempdir_in("/tmp").unwrap();
    let copy = folder.path().join("program");
    // Copied by another process: a child that is forked during the write would keep the file open, so that it could not be executed.
    assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(copy);
    (command, folder)
}

/// The running processes that have this directory in their arguments.
pub(crate) fn processes_of(folder: &Path) -> Vec<u32> {
    let folder = folder.as_os_str().as_bytes();
    let is_of = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.windows(folder.len()).any(|window| window == folder)
    };
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| is_of(pid) && is_alive(*pid)).collect()
}

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Whether a process exists that is not a zombie.
pub(crate) fn is_alive(number: u32) -> bool {
    let zombie = fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    test_kill_process(pid(number)).is_ok() && !zombie
}

/// Kills a runner's process group, and waits until the runner has exited: a kill returns before the signal has an effect.
pub(crate) async fn kill_group(runner: u32) {
    rustix::process::kill_process_group(pid(runner), Signal::KILL).unwrap();
    eventually("the runner is gone", async || if is_alive(runner) { Err(runner) } else { Ok(()) }).await;
}

/// Upstream's client, with responses as plain values.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) ProcessWrapperClient<Channel>);

pub(crate) async fn unix_client(socket: &Path) -> Result<Client, tonic::transport::Error> {
    Ok(Client(ProcessWrapperClient::new(unix_channel(socket).await?)))
}

pub(crate) async fn unix_channel(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://wrapper").connect_with_connector(connect).await
}

pub(crate) async fn tcp_client(address: &str) -> Result<Client, tonic::transport::Error> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    Ok(Client(ProcessWrapperClient::new(channel)))
}

impl Client {
    pub(crate) async fn status(&mut self) -> (Status, String) {
        let answer = self.0.check_status(CheckStatusRequest {}).await.unwrap().into_inner();
        (answer.status(), answer.failure_reason)
    }

    /// Waits for a status, and returns its failure reason.
    pub(crate) async fn becomes(&mut self, wanted: Status) -> String {
        let client = self.clone();
        eventually("status", async || {
            let (status, reason) = client.clone().status().await;
            if status == wanted { Ok(reason) } else { Err((status, reason)) }
        })
        .await
    }

    pub(crate) async fn graceful(&mut self) -> Status {
        self.graceful_with(None).await.unwrap()
    }

    pub(crate) async fn graceful_with(
        &mut self,
        shutdown_callback: Option<ShutdownCallback>,
    ) -> Result<Status, tonic::Status> {
        let request = InitGracefulShutdownRequest { shutdown_callback };
        Ok(self.0.init_graceful_shutdown(request).await?.into_inner().status())
    }

    pub(crate) async fn forceful(&mut self) -> Status {
        self.0.init_forceful_shutdown(InitForcefulShutdownRequest {}).await.unwrap().into_inner().status()
    }
}

/// Tries every 10 ms until `check` returns `Ok`; fails the test with the last `Err` after [`LIMIT`].
pub(crate) async fn eventually<T, E: Debug>(what: &str, mut check: impl AsyncFnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return value,
            Err(last) if start.elapsed() > LIMIT => panic!("{what}: not within {LIMIT:?}; last: {last:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

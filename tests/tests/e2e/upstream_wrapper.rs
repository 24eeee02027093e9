//! The provider with upstream's wrapper, which has only three calls.
//!
//! `gitlab-runner wrapper` is not available here. Its stand-in serves only upstream's service, with upstream's
//! limitations: `running` means only that the process was started; the response to a shutdown before the process exists is
//! OK, but the shutdown is lost; and a shutdown during the runner's exit leaves the status `in_shutdown` forever.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use grit_proto::runner_wrapper::{
    CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
    InitGracefulShutdownRequest, InitGracefulShutdownResponse, Status as RunnerStatus,
    process_wrapper_server::{ProcessWrapper, ProcessWrapperServer},
};
use grit_tests::{
    lab::{Lab, cloud::Instance},
    terraform::Workspace,
};
use serde_json::{Value as Json, json};
use tonic::{Request, Response, Status};

/// The stand-in. Its runner takes `drain` to exit.
#[derive(Clone)]
pub(super) struct Upstream {
    life: Arc<Mutex<Life>>,
}

struct Life {
    starts_at: Instant,
    asked: Option<Instant>,
    requests: usize,
    drain: Duration,
    /// The runner exited between the signal and the status update, which overwrote the exit. There is no
    /// process any more, and the response to a further shutdown is OK.
    stuck: bool,
}

impl Upstream {
    pub(super) fn new(starts_in: Duration, drain: Duration) -> Self {
        let life =
            Life { starts_at: Instant::now() + starts_in, asked: None, requests: 0, drain, stuck: false };
        Self { life: Arc::new(Mutex::new(life)) }
    }

    fn stuck() -> Self {
        let upstream = Self::new(Duration::ZERO, Duration::ZERO);
        upstream.life.lock().unwrap().stuck = true;
        upstream
    }

    pub(super) fn status(&self) -> i32 {
        let life = self.life.lock().unwrap();
        let status = match life.asked {
            _ if Instant::now() < life.starts_at => RunnerStatus::Unknown,
            None => RunnerStatus::Running,
            Some(asked) if life.stuck || asked.elapsed() < life.drain => RunnerStatus::InShutdown,
            Some(_) => RunnerStatus::Stopped,
        };
        status.into()
    }

    fn ask(&self) {
        let mut life = self.life.lock().unwrap();
        life.requests += 1;
        if Instant::now() >= life.starts_at {
            life.asked.get_or_insert_with(Instant::now);
        }
    }

    /// The runner exits now.
    pub(super) fn exit(&self) {
        self.life.lock().unwrap().drain = Duration::ZERO;
    }

    pub(super) fn requests(&self) -> usize {
        self.life.lock().unwrap().requests
    }

    /// Serves on a loopback port until the test's process ends.
    pub(super) fn serve(&self) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let service = ProcessWrapperServer::new(self.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
                tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
            })
        });
        address
    }
}

#[tonic::async_trait]
impl ProcessWrapper for Upstream {
    async fn check_status(
        &self,
        _: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        Ok(Response::new(CheckStatusResponse { status: self.status(), failure_reason: String::new() }))
    }

    async fn init_graceful_shutdown(
        &self,
        _: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        self.ask();
        Ok(Response::new(InitGracefulShutdownResponse {
            status: self.status(),
            failure_reason: String::new(),
        }))
    }

    async fn init_forceful_shutdown(
        &self,
        _: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        self.ask();
        Ok(Response::new(InitForcefulShutdownResponse {
            status: self.status(),
            failure_reason: String::new(),
        }))
    }
}

pub(super) fn manager(instance: &Instance, wrapper: SocketAddr) -> Json {
    Instance { wrapper_address: format!("tcp://{wrapper}"), ..instance.clone() }.runner_manager()
}

/// A workspace with one resource of this type over a host whose SSH server is the lab's.
fn workspace(lab: &Lab, resource: &str, attributes: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    write(&workspace, lab, resource, attributes);
    workspace
}

fn write(workspace: &Workspace, lab: &Lab, resource: &str, attributes: &Json) {
    let main = lab.configuration(&json!({ resource: { "m1": attributes } }));
    workspace.write("main.tf.json", &main).unwrap();
}

#[test]
fn upstream_health_is_limited_to_process() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let wrapper = Upstream::new(Duration::from_secs(2), Duration::ZERO).serve();
    let health_check =
        json!({ "runner_managers": { "m1": manager(&instance, wrapper) }, "level": "process" });
    let workspace = workspace(&lab, "grit_runner_health", &health_check);
    workspace.apply().unwrap().succeeded();
    let state = workspace.state().unwrap();
    let evidence = &state.at("grit_runner_health.m1")[0].attributes["managers"]["m1"];
    assert_eq!(
        (&evidence["level"], &evidence["wrapper"]),
        (&json!("process"), &json!("upstream")),
        "{evidence}"
    );
    assert_eq!(
        (&evidence["version"], &evidence["jobs"]),
        (&Json::Null, &Json::Null),
        "unknown is not zero: {evidence}"
    );

    let mut strict = health_check;
    strict["level"] = Json::Null;
    write(&workspace, &lab, "grit_runner_health", &strict);
    let failed = workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, "Health cannot be proved", "{errors:?}");
    assert!(errors[0].1.ends_with("Code: invalid_config"), "{errors:?}");
}

#[test]
fn upstream_drain_ends_with_process_exit() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let upstream = Upstream::new(Duration::ZERO, Duration::from_secs(2));
    let drain = json!({ "instance_id": instance.id, "runner_manager": manager(&instance, upstream.serve()) });
    let workspace = workspace(&lab, "grit_runner_drain", &drain);
    workspace.apply().unwrap().succeeded();
    assert_eq!(upstream.requests(), 0);
    workspace.destroy().unwrap().succeeded();
    assert_eq!(upstream.status(), i32::from(RunnerStatus::Stopped));
    assert_eq!(upstream.requests(), 1, "a drain that is under way is waited for, not asked for again");
}

#[test]
fn forgotten_upstream_shutdown_is_re_requested() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let upstream = Upstream::new(Duration::from_secs(10), Duration::from_secs(1));
    let drain = json!({ "instance_id": instance.id, "runner_manager": manager(&instance, upstream.serve()) });
    let workspace = workspace(&lab, "grit_runner_drain", &drain);
    workspace.apply().unwrap().succeeded();
    workspace.destroy().unwrap().succeeded();
    assert_eq!(upstream.status(), i32::from(RunnerStatus::Stopped));
    assert!(upstream.requests() >= 2, "{}", upstream.requests());
}

/// Such a wrapper never reports evidence of the exit. The drain waits until its timeout, fails, and keeps the instance.
#[test]
fn stuck_upstream_shutdown_fails_drain() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let upstream = Upstream::stuck();
    let drain = json!({
        "instance_id": instance.id,
        "runner_manager": manager(&instance, upstream.serve()),
        "timeouts": { "delete": "5s" },
    });
    let workspace = workspace(&lab, "grit_runner_drain", &drain);
    workspace.apply().unwrap().succeeded();
    let failed = workspace.destroy().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("`draining`") && errors[0].1.ends_with("Code: timed_out"), "{errors:?}");
    assert!(upstream.requests() >= 1);
    assert_eq!(workspace.state().unwrap().at("grit_runner_drain.m1").len(), 1, "the drain resource is kept");
}

/// A gRPC C-core server instead of upstream's grpc-go, which is not available here.
#[test]
fn works_with_grpc_c_core_server() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/upstream_wrapper/server.py");
    let mut command = Command::new("/usr/bin/python3");
    let mut server = command
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("install python3-grpcio");
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    let port = said.next().expect("install python3-grpcio").unwrap().parse().unwrap();
    let wrapper = SocketAddr::from(([127, 0, 0, 1], port));

    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let runner_manager = manager(&instance, wrapper);
    let health_check = json!({ "runner_managers": { "m1": runner_manager }, "level": "process" });
    workspace(&lab, "grit_runner_health", &health_check).apply().unwrap().succeeded();
    let drain = json!({
        "instance_id": instance.id,
        "runner_manager": runner_manager,
    });
    let workspace = workspace(&lab, "grit_runner_drain", &drain);
    workspace.apply().unwrap().succeeded();
    workspace.destroy().unwrap().succeeded();

    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
    let calls: Vec<_> = said.map(Result::unwrap).collect();
    let wanted = ["CheckStatus ", "InitGracefulShutdown "];
    assert!(wanted.iter().all(|wanted| calls.iter().any(|call| call == wanted)), "{calls:?}");
}

#[test]
fn upstream_shutdown_is_requested_once_in_two_runs() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let upstream = Upstream::new(Duration::ZERO, Duration::from_secs(5));
    let mut shutdown =
        json!({ "runner_managers": { "m1": manager(&instance, upstream.serve()) }, "wait": false });
    let mut workspace = workspace(&lab, "grit_runner_shutdown", &shutdown);
    let log = workspace.tmp().join("provider.log");
    workspace.set_env("TF_LOG_PROVIDER", "WARN");
    workspace.set_env("TF_LOG_PATH", &log);
    let evidence = |workspace: &Workspace| {
        let state = workspace.state().unwrap();
        state.at("grit_runner_shutdown.m1")[0].attributes["managers"]["m1"].clone()
    };
    workspace.apply().unwrap().succeeded();
    assert_eq!(evidence(&workspace)["state"], "draining");

    shutdown["wait"] = json!(true);
    write(&workspace, &lab, "grit_runner_shutdown", &shutdown);
    workspace.apply().unwrap().succeeded();
    assert_eq!(upstream.status(), i32::from(RunnerStatus::Stopped));
    assert_eq!(upstream.requests(), 1);
    let evidence = evidence(&workspace);
    let wrapper = json!("upstream (over TCP, not verified)");
    assert_eq!((&evidence["state"], &evidence["wrapper"]), (&json!("stopped"), &wrapper));
    let log = std::fs::read_to_string(log).unwrap();
    let warning = "the wrapper was reached over TCP and could not be verified";
    assert_eq!(log.matches(warning).count(), 2, "for each shutdown: {log}");
    assert_eq!((&evidence["exit"], &evidence["outcome"]), (&Json::Null, &Json::Null), "{evidence}");
}

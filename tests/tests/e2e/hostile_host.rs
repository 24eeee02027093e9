//! A runner manager under the control of an attacker: neither its SSH server nor its wrapper makes the provider use much memory, or makes an
//! output or the state large.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use grit_proto::wrapper_v1::{
    self as v1,
    wrapper_server::{Wrapper, WrapperServer},
};
use grit_tests::{
    ssh_server::{ChannelKind, KeyPair, Opens, SshServer},
    terraform::{Run, Workspace},
};
use serde_json::json;
use tonic::{Request, Response, Status, codegen::BoxStream};

/// For the output of Terraform, and for the state.
const MAX_OUTPUT: usize = 64 << 10;
/// For the resident memory of the provider.
const MAX_MEMORY: usize = 40_000_000;

/// The responses of a wrapper. Its watch sends the status again and again without a pause.
#[derive(Clone)]
struct Hostile(Arc<dyn Fn() -> Result<v1::Status, Status> + Send + Sync>);

#[tonic::async_trait]
impl Wrapper for Hostile {
    async fn get_status(&self, _: Request<v1::GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        (self.0)().map(Response::new)
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<BoxStream<v1::Status>>, Status> {
        let status = (self.0)()?;
        Ok(Response::new(Box::pin(tokio_stream::iter(std::iter::repeat_with(move || Ok(status.clone()))))))
    }

    async fn drain(&self, _: Request<v1::DrainRequest>) -> Result<Response<v1::DrainResponse>, Status> {
        let status = (self.0)()?;
        Ok(Response::new(v1::DrainResponse { status: Some(status), ..v1::DrainResponse::default() }))
    }

    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn start(&self, _: Request<v1::StartRequest>) -> Result<Response<v1::StartResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list_jobs(
        &self,
        _: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

impl Hostile {
    /// Serves until the process of the test ends, and returns the address.
    fn serve(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tonic::transport::Server::builder()
                    .add_service(WrapperServer::new(self))
                    .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener))
                    .await
            })
        });
        address
    }
}

/// A health check and a status of runner managers on one host, applied for a few seconds.
fn apply(key: &KeyPair, server: &SshServer, wrappers: &[String]) -> (Workspace, Run) {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let manager = |(number, wrapper): (usize, &String)| {
        let name = format!("m{number}");
        let address = server.address().to_string();
        (name.clone(), json!({ "instance_name": name, "address": address, "wrapper_address": wrapper }))
    };
    let managers: serde_json::Map<_, _> = (1..).zip(wrappers).map(manager).collect();
    let ssh = json!({ "username": "deploy", "private_key": key.private, "host_keys": [server.host_key()] });
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": ssh } },
        "data": { "grit_runner_status": { "all": { "runner_managers": managers } } },
        "resource": { "grit_runner_health": { "all": {
            "runner_managers": managers,
            "timeouts": { "create": "4s" },
        } } },
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    let ended = AtomicBool::new(false);
    let (run, memory) = std::thread::scope(|scope| {
        let watched = scope.spawn(|| {
            let mut peak = 0;
            while !ended.load(Ordering::Relaxed) {
                let ids = workspace.providers().ids().unwrap();
                peak = ids.into_iter().map(peak_memory).fold(peak, usize::max);
                std::thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let run = workspace.run(["apply", "-auto-approve", "-no-color"]).unwrap();
        ended.store(true, Ordering::Relaxed);
        (run, watched.join().unwrap())
    });
    assert!((1..=MAX_MEMORY).contains(&memory), "the provider used {memory} bytes");
    let (output, state) = (run.stdout.len() + run.stderr.len(), workspace.state().unwrap().text.len());
    assert!(output <= MAX_OUTPUT, "{output} bytes of output: {:.2000}", run.stderr);
    assert!(state <= MAX_OUTPUT, "a state of {state} bytes");
    (workspace, run)
}

/// The maximum of the resident memory of a process, in bytes. 0 if it has ended.
fn peak_memory(process: u32) -> usize {
    let status = fs::read_to_string(PathBuf::from(format!("/proc/{process}/status"))).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).map_or(0, |kib| kib * 1024)
}

fn through_sshd(answer: impl Fn() -> Result<v1::Status, Status> + Send + Sync + 'static) -> (Workspace, Run) {
    let key = KeyPair::generate().unwrap();
    let server = SshServer::start(&[&key.public]).unwrap();
    apply(&key, &server, &[Hostile(Arc::new(answer)).serve()])
}

fn running(health: v1::Health) -> v1::Status {
    v1::Status { state: v1::State::Running.into(), health: Some(health), ..v1::Status::default() }
}

/// Repeats a text to about `bytes`.
fn long(text: &str, bytes: usize) -> String {
    text.repeat(bytes / text.len())
}

#[test]
fn response_of_many_megabytes_is_refused() {
    let reasons = vec!["r".to_owned(); 1_300_000];
    let (_, run) =
        through_sshd(move || Ok(running(v1::Health { reasons: reasons.clone(), ..v1::Health::default() })));
    let text = run.failed().stderr;
    assert!(text.contains("Response of wrapper is too large"), "{text}");
}

#[test]
fn texts_and_lists_of_wrapper_are_shortened() {
    for text in ["r", "\u{1b}", "<", "\n", "\u{202e}"] {
        let status = move || {
            let health = v1::Health {
                reasons: [vec![long(text, 3000); 20], vec![text.to_owned(); 1000]].concat(),
                runner_version: Some(long(text, 1000)),
                oldest_job: Some(v1::OldestJob { age: None, stage: long(text, 1000) }),
                ..v1::Health::default()
            };
            Ok(v1::Status {
                failure_reason: long(text, 9000),
                wrapper_version: long(text, 1000),
                process: long(text, 1000),
                drain: Some(v1::Drain {
                    id: long(text, 2000),
                    reason: long(text, 2000),
                    requested_by: long(text, 2000),
                    ..v1::Drain::default()
                }),
                ..running(health)
            })
        };
        let (_, run) = through_sshd(status);
        assert!(run.failed().stderr.contains("Runner manager is not healthy"), "{text:?}");
    }
}

#[test]
fn lists_of_tiny_texts_are_cut() {
    // Just below the size of a response that is refused.
    let reasons = vec![String::new(); 60_000];
    let (_, run) =
        through_sshd(move || Ok(running(v1::Health { reasons: reasons.clone(), ..v1::Health::default() })));
    assert!(run.failed().stderr.contains("and 59980 more"));
}

#[test]
fn error_text_of_wrapper_is_shortened() {
    // The limit of a header is 16 KiB.
    let (_, run) = through_sshd(|| Err(Status::internal(long("<", 5000))));
    let text = run.failed().stderr;
    assert!(text.contains("returned Internal") && text.len() < 4000, "{text}");
}

#[test]
fn channels_of_ssh_server_end_the_wait() {
    let key = KeyPair::generate().unwrap();
    for kind in [ChannelKind::Session, ChannelKind::ForwardedTcpip] {
        let opens = Opens::new(kind, usize::MAX);
        let server = SshServer::start_opening(&[&key.public], &opens).unwrap();
        let (_, run) = apply(&key, &server, &["tcp://127.0.0.1:1".to_owned()]);
        let text = run.failed().stderr;
        assert!(text.contains("SSH server opened channels that were not requested"), "{text}");
        assert_eq!(opens.accepted(), 0);
    }
}

//! The health levels, with an HTTP server of the runner whose responses the test sets.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use grit_proto::wrapper_v1::{
    DrainRequest, GetStatusRequest, Health, Level, ListJobsRequest, WatchRequest,
    wrapper_client::WrapperClient,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};
use tonic::{Code, transport::Channel};

use crate::support::{Start, UNRELATED_USER, Wrapper, as_user, eventually, is_root, misbehaving_child};

pub(crate) const CONFIG: &str = "concurrent = 10\n[[runners]]\nname = \"a\"\ntoken = \"glrt-aaaaaaaaaaaa\"\n\
                      [[runners]]\nname = \"b\"\ntoken = \"glrt-bbbbbbbbbbbb\"\n";
pub(crate) const VERSION: &str = "gitlab_runner_version_info{revision=\"r1\",version=\"19.2.0\"} 1\n";

/// A runner's HTTP server: responses by path, and 404 for other paths, as with an older runner. The misbehaving child listens on `address`, and
/// forwards connections to the socket `backend`.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) address: String,
    pub(crate) backend: PathBuf,
    /// The directory of the socket, and the port of `address` on 127.0.0.1, so that no other test uses it.
    _reserved: Arc<(TempDir, std::net::TcpListener)>,
    pages: Arc<Mutex<HashMap<&'static str, (u16, String)>>>,
    /// The number of requests for the job list, and the duration of a response.
    pub(crate) list: Arc<Mutex<(usize, Duration)>>,
}

impl Runner {
    pub(crate) async fn new() -> Self {
        // Another user can have the child that connects to it.
        let open = || PermissionsExt::from_mode(0o777);
        let folder = tempfile::Builder::new().permissions(open()).tempdir().unwrap();
        let backend = folder.path().join("http.sock");
        let listener = UnixListener::bind(&backend).unwrap();
        fs::set_permissions(&backend, open()).unwrap();
        let reserved = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("127.0.0.2:{}", reserved.local_addr().unwrap().port());
        let reserved = Arc::new((folder, reserved));
        let runner =
            Self { address, backend, _reserved: reserved, pages: Arc::default(), list: Arc::default() };
        let server = runner.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(server.clone().answer(stream));
            }
        });
        runner
    }

    /// Waits until the misbehaving child listens. Before that, the wrapper cannot request anything.
    pub(crate) async fn listens(&self) {
        eventually("the runner listens", async || tokio::net::TcpStream::connect(&self.address).await).await;
    }

    pub(crate) fn says(&self, path: &'static str, status: u16, text: &str) {
        self.pages.lock().unwrap().insert(path, (status, text.to_owned()));
    }

    /// Sets the duration of further responses with the job list.
    pub(crate) fn list_takes(&self, time: Duration) {
        self.list.lock().unwrap().1 = time;
    }

    async fn answer(self, stream: UnixStream) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let mut path = None;
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if line == "\r\n" {
                if path.as_deref() == Some("/debug/jobs/list") {
                    let takes = {
                        let mut list = self.list.lock().unwrap();
                        list.0 += 1;
                        list.1
                    };
                    tokio::time::sleep(takes).await;
                }
                let page = self.pages.lock().unwrap().get(path.as_deref().unwrap_or_default()).cloned();
                let (status, text) = page.unwrap_or((404, String::new()));
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                path = None;
            } else if path.is_none() {
                path = line.split(' ').nth(1).map(str::to_owned);
            }
            line.clear();
        }
    }
}

pub(crate) fn polls(section: &str, status: u16, count: u64) -> String {
    format!(
        "gitlab_runner_api_request_statuses_total{{endpoint=\"request_job\",runner=\"{section}\",status=\"{status}\"}} {count}\n"
    )
}

pub(crate) async fn watched(
    runner: Option<&Runner>,
    config: Option<&str>,
    habits: &[&str],
) -> (Wrapper, WrapperClient<Channel>) {
    watched_with(runner, config, &[], habits).await
}

pub(crate) async fn watched_with(
    runner: Option<&Runner>,
    config: Option<&str>,
    flags: &[&str],
    habits: &[&str],
) -> (Wrapper, WrapperClient<Channel>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    if let Some(config) = config {
        fs::write(&path, config).unwrap();
    }
    let start = Start::again(folder).flags(&with_defaults(flags)).env("CONFIG_FILE", path.to_str().unwrap());
    let start = match runner {
        Some(runner) => start.runner(runner),
        None => start,
    };
    let wrapper = start.child(habits);
    let client = wrapper.v1_client().await;
    if let Some(runner) = runner {
        runner.listens().await;
    }
    (wrapper, client)
}

/// These flags, and the flags of a fast wrapper that they do not contain.
fn with_defaults<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let name = |flag: &'a str| flag.split('=').next();
    let defaults = ["--start-grace=0s", "--probe-interval=100ms"];
    let missing =
        defaults.into_iter().filter(|default| !flags.iter().any(|flag| name(flag) == name(default)));
    missing.chain(flags.iter().copied()).collect()
}

pub(crate) async fn becomes(client: &mut WrapperClient<Channel>, level: Level, reason: &str) -> Health {
    eventually("health", async || {
        let status = client.clone().get_status(GetStatusRequest {}).await.unwrap().into_inner();
        let health = status.health.unwrap();
        let found = health.level() == level && health.reasons.join("; ").contains(reason);
        if found { Ok(health) } else { Err(health) }
    })
    .await
}

#[tokio::test]
async fn new_runner_reaches_each_level() {
    let runner = Runner::new().await;
    runner.says("/health/ready", 503, "boot-verify pending\n");
    let version = VERSION.to_owned()
        + "gitlab_runner_limit{runner=\"aaaaaaaaa\",runner_name=\"a\"} 0\n\
           gitlab_runner_limit{runner=\"bbbbbbbbb\",runner_name=\"b\"} 0\n";
    runner.says("/metrics", 200, &version);
    let (_wrapper, mut client) = watched(Some(&runner), Some(CONFIG), &[]).await;
    becomes(&mut client, Level::Process, "boot-verify pending").await;
    runner.says("/health/ready", 200, "ready\n");
    let health = becomes(&mut client, Level::Ready, "no job request has had a response yet").await;
    assert_eq!(
        (health.runner_version.as_deref(), health.runner_revision.as_deref()),
        (Some("19.2.0"), Some("r1"))
    );
    assert_eq!((health.sections, health.polling_sections, health.jobs), (Some(2), Some(0), None));

    runner.says("/metrics", 200, &(version.clone() + &polls("aaaaaaaaa", 204, 1)));
    eventually("one of two polls", async || {
        let health = becomes(&mut client, Level::Ready, "runner \"b\" (bbbbbbbbb)").await;
        if health.polling_sections == Some(1) && health.reasons.len() == 1 { Ok(()) } else { Err(health) }
    })
    .await;
    let both = version + &polls("aaaaaaaaa", 204, 2) + &polls("bbbbbbbbb", 201, 1);
    runner.says("/metrics", 200, &both);
    becomes(&mut client, Level::Polling, "").await;
    let ended =
        |count: u64| format!("gitlab_runner_job_duration_seconds_count{{runner=\"aaaaaaaaa\"}} {count}\n");
    let failed =
        "gitlab_runner_failed_jobs_total{runner=\"aaaaaaaaa\",failure_reason=\"script_failure\"} 1\n";
    runner.says("/metrics", 200, &(both.clone() + &ended(1) + failed));
    eventually("one failed job", async || {
        let health = becomes(&mut client, Level::Polling, "").await;
        if health.jobs_failed == Some(1) { Ok(()) } else { Err(health) }
    })
    .await;
    runner.says("/metrics", 200, &(both.clone() + &ended(2) + failed));
    let health = becomes(&mut client, Level::Working, "").await;
    assert_eq!((health.jobs_succeeded, health.concurrent), (Some(1), Some(10)));

    let rejected = both + &polls("bbbbbbbbb", 403, 1);
    runner.says("/metrics", 200, &rejected);
    becomes(&mut client, Level::Ready, "GitLab rejects its token").await;
    let disabled =
        rejected.clone() + "gitlab_runner_worker_health_check_failures_total{runner=\"bbbbbbbbb\"} 3\n";
    runner.says("/metrics", 200, &disabled);
    becomes(&mut client, Level::Ready, "the runner pauses its job requests for 1h").await;
}

#[tokio::test]
async fn older_runner_falls_back_to_metrics() {
    let runner = Runner::new().await;
    let starting = VERSION.to_owned() + "gitlab_runner_process_state_info{state=\"starting\"} 1\n";
    runner.says("/metrics", 200, &starting);
    let (_wrapper, mut client) = watched(Some(&runner), Some(CONFIG), &[]).await;
    becomes(&mut client, Level::Process, "process state is starting").await;
    runner.says("/metrics", 200, &starting.replace("starting", "running"));
    becomes(&mut client, Level::Ready, "").await;
    // Even older: only metrics.
    runner.says("/metrics", 200, VERSION);
    becomes(&mut client, Level::Ready, "").await;
    runner.says("/metrics", 500, "");
    becomes(&mut client, Level::Process, "500").await;
}

#[tokio::test]
async fn runner_without_config_reaches_level_process() {
    let runner = Runner::new().await;
    runner.says("/metrics", 200, VERSION);
    let (wrapper, mut client) = watched(Some(&runner), None, &[]).await;
    // The first probe may be older than the server.
    let health = eventually("a probe of the server", async || {
        let health = becomes(&mut client, Level::Process, "config.toml\" does not exist").await;
        if health.runner_version.is_some() { Ok(health) } else { Err(health) }
    })
    .await;
    assert!(!health.reasons.join("").contains("no HTTP server"), "it has one: {:?}", health.reasons);
    assert_eq!(health.runner_version.as_deref(), Some("19.2.0"));
    assert_eq!(health.level_max(), Level::Working);
    drop(wrapper);
    let (wrapper, mut client) = watched(Some(&runner), Some("concurrent = 1\n"), &[]).await;
    becomes(&mut client, Level::Process, "has no [[runners]] section").await;
    let (_wrapper, mut client) = watched(None, Some(CONFIG), &[]).await;
    let health = becomes(&mut client, Level::Process, "no HTTP server").await;
    assert_eq!(health.level_max(), Level::Process);
    drop(wrapper);
    let (_wrapper, mut client) = watched(Some(&runner), Some("token = \"s3cret"), &[]).await;
    let health = becomes(&mut client, Level::Process, "invalid TOML").await;
    assert!(!health.reasons.join("").contains("s3cret"));
}

/// The default configuration is that of the runner's user, who has chosen HOME: root does not read it.
#[tokio::test]
async fn runner_of_another_user_needs_the_path_of_its_config() {
    if !is_root() {
        return grit_testkit::not_covered("a runner of another user", "this is not root");
    }
    let (_, child) = as_user(UNRELATED_USER, &misbehaving_child());
    let child = child.path().join("program");
    let ids = [format!("--reuid={UNRELATED_USER}"), format!("--regid={UNRELATED_USER}")];
    let test = std::process::id().to_string();
    let words =
        ["setpriv", &ids[0], &ids[1], "--clear-groups", child.to_str().unwrap(), "--lives-with", &test];
    let unknown = format!("runs as the user with UID {UNRELATED_USER}");
    for config in [None, Some("concurrent = 1\n[[runners]]\nname = \"a\"\n")] {
        let runner = Runner::new().await;
        runner.says("/metrics", 200, VERSION);
        let start = Start::new().flags(&with_defaults(&[])).runner(&runner);
        let path = start.folder_path().join("config.toml");
        // This user's default has another content.
        let home = start.folder_path().join(".gitlab-runner");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("config.toml"), "concurrent = 77\n[[runners]]\nname = \"x\"\n").unwrap();
        let start = start.env("HOME", home.parent().unwrap().to_str().unwrap());
        let start = match config {
            Some(config) => {
                fs::write(&path, config).unwrap();
                start.env("CONFIG_FILE", path.to_str().unwrap())
            }
            None => start,
        };
        let wrapper = start.command(&words);
        let mut client = wrapper.v1_client().await;
        let (level, level_max, reason, concurrent) = match config {
            Some(_) => (Level::Ready, Level::Working, "", Some(1)),
            None => (Level::Process, Level::Process, unknown.as_str(), None),
        };
        let health = becomes(&mut client, level, reason).await;
        assert_eq!((health.level_max(), health.concurrent), (level_max, concurrent), "{:?}", health.reasons);
        assert!(!health.reasons.join("; ").contains("no HTTP server"), "{:?}", health.reasons);
    }
}

/// Otherwise each request of a client would be a request to the runner, and use a file descriptor of the wrapper.
#[tokio::test]
async fn concurrent_job_queries_share_one_runner_request() {
    let runner = Runner::new().await;
    let polls = polls("aaaaaaaaa", 204, 1) + &polls("bbbbbbbbb", 204, 1);
    runner.says("/metrics", 200, &(VERSION.to_owned() + &polls));
    runner.says("/debug/jobs/list", 200, "");
    let (_wrapper, mut client) = watched(Some(&runner), Some(CONFIG), &[]).await;
    becomes(&mut client, Level::Polling, "").await;
    *runner.list.lock().unwrap() = (0, Duration::from_millis(300));
    let requests = (0..100).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.list_jobs(ListJobsRequest {}).await.unwrap() })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.unwrap();
    }
    // The wrapper serves eight calls of one connection at a time, and also reads the job list for its health probe.
    let times = runner.list.lock().unwrap().0;
    assert!((2..50).contains(&times), "{times} times");
}

#[tokio::test]
async fn jobs_are_counted_and_listed_without_project() {
    let runner = Runner::new().await;
    runner.says("/metrics", 200, &(VERSION.to_owned() + "gitlab_runner_jobs{state=\"running\"} 5\n"));
    let (wrapper, mut client) = watched(Some(&runner), Some(CONFIG), &["--jobs-take", "60000"]).await;
    wrapper.child_ready().await;
    let health = becomes(&mut client, Level::Ready, "").await;
    assert_eq!((health.jobs, health.oldest_job), (Some(5), None), "the metrics know no ages");
    let unknown = client.list_jobs(ListJobsRequest {}).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable);

    let url = "https://gitlab.example/secret/project/-/jobs/17";
    runner.says(
        "/debug/jobs/list",
        200,
        &format!(
            "url={url} state=running stage=step_script executor_stage=docker_run duration=2h10m3s\n\
             url={url}8 state=running stage=prepare_script executor_stage=docker_run duration=4.5s\n"
        ),
    );
    let jobs = client.list_jobs(ListJobsRequest {}).await.unwrap().into_inner().jobs;
    let ids: Vec<_> = jobs.iter().map(|job| job.id()).collect();
    assert_eq!(ids, [17, 178]);
    assert!(!format!("{jobs:?}").contains("gitlab.example"));

    // A job of this runner cannot wait for the exit of the runner.
    let drain = |job_url: &str| DrainRequest {
        id: "d".to_owned(),
        job_url: job_url.to_owned(),
        ..DrainRequest::default()
    };
    let refused = client.drain(drain(url)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("by job 17 of this runner"), "{}", refused.message());
    assert_eq!(wrapper.record(), "ready");

    // The drain of another client shows its progress.
    client.drain(drain("https://gitlab.example/other/-/jobs/1")).await.unwrap();
    let mut watch = client.watch(WatchRequest {}).await.unwrap().into_inner();
    loop {
        let health = watch.message().await.unwrap().unwrap().health.unwrap();
        if let Some(oldest) = health.oldest_job {
            assert_eq!((health.jobs, oldest.stage.as_str()), (Some(2), "step_script"));
            assert_eq!(oldest.age.unwrap().seconds, 7803);
            break;
        }
    }
    runner.says("/debug/jobs/list", 200, "");
    eventually("no job is left", async || {
        let status = client.clone().get_status(GetStatusRequest {}).await.unwrap().into_inner();
        let health = status.health.clone().unwrap();
        if health.jobs == Some(0) && health.oldest_job.is_none() { Ok(status) } else { Err(health) }
    })
    .await;
    assert_eq!(wrapper.client().await.status().await.0, grit_proto::runner_wrapper::Status::InShutdown);
}

/// If reading the configuration hangs, the wrapper still responds, and reports the reason.
#[tokio::test]
async fn fifo_as_config_file_does_not_block_wrapper() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &config, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let wrapper = Start::again(folder)
        .flags(&["--start-grace=0s", "--probe-interval=100ms"])
        .env("CONFIG_FILE", config.to_str().unwrap())
        .child(&[]);
    let mut client = wrapper.v1_client().await;
    becomes(&mut client, Level::Process, "config.toml\": it is not a regular file").await;
    assert_eq!(client.list_jobs(ListJobsRequest {}).await.unwrap_err().code(), Code::Unavailable);
    wrapper.child_ready().await;
    let drain = DrainRequest { id: "d".to_owned(), ..DrainRequest::default() };
    client.drain(drain).await.unwrap();
    wrapper.client().await.becomes(grit_proto::runner_wrapper::Status::Stopped).await;
}

//! Health data applies to one child: results for another child are not reported.

use std::time::Duration;

use grit_proto::wrapper_v1::{
    GetStatusRequest, Level, StartRequest, State, Status, wrapper_client::WrapperClient,
};
use rustix::process::{Signal, kill_process};
use tonic::transport::Channel;

use crate::{
    health_levels::{CONFIG, Runner, VERSION, becomes, polls, watched_with},
    support::{Start, eventually, pid},
};

async fn status(client: &WrapperClient<Channel>) -> Status {
    client.clone().get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

/// A runner's HTTP server with metrics of sections that all poll.
async fn polling_runner() -> Runner {
    let runner = Runner::new().await;
    let polls = polls("aaaaaaaaa", 204, 1) + &polls("bbbbbbbbb", 204, 1);
    runner.says("/metrics", 200, &(VERSION.to_owned() + &polls));
    runner.says("/debug/jobs/list", 200, "");
    runner
}

/// A probe may take seconds. The level of the first runner is reported only until its exit.
#[tokio::test]
async fn next_runner_is_not_polling_before_first_probe() {
    let runner = polling_runner().await;
    let (wrapper, mut client) = watched_with(Some(&runner), Some(CONFIG), &[], &[]).await;
    wrapper.child_ready().await;
    let first = wrapper.child_pid();
    becomes(&mut client, Level::Polling, "").await;
    // From here on each probe is slow, and one is in progress when the runner exits.
    let probes = {
        let mut list = runner.list.lock().unwrap();
        list.1 = Duration::from_secs(2);
        list.0
    };
    eventually("a slow probe", async || {
        let now = runner.list.lock().unwrap().0;
        if now > probes { Ok(()) } else { Err(now) }
    })
    .await;
    assert_eq!(status(&client).await.health.unwrap().level(), Level::Polling);
    kill_process(pid(first), Signal::KILL).unwrap();
    eventually("failed", async || {
        let now = status(&client).await;
        if now.state() == State::Failed { Ok(()) } else { Err(now) }
    })
    .await;
    let started = client.start(StartRequest {}).await.unwrap().into_inner().status.unwrap();
    let health = started.health.clone().unwrap();
    assert_eq!((started.state(), health.level()), (State::Running, Level::None), "{started:?}");
    assert_eq!(health.reasons, ["the runner is starting and has not been probed yet"]);
    assert_eq!((health.level_max(), health.jobs, &health.runner_version), (Level::Unspecified, None, &None));
    assert_eq!(started.restarts, 0);
    becomes(&mut client, Level::Polling, "").await;
}

/// Between two probes the age of a job increases.
#[tokio::test]
async fn oldest_job_age_grows_between_probes() {
    let runner = polling_runner().await;
    let job = "url=https://gitlab.example/-/jobs/17 state=running stage=step_script executor_stage=run duration=10s\n";
    runner.says("/debug/jobs/list", 200, job);
    let (wrapper, mut client) =
        watched_with(Some(&runner), Some(CONFIG), &["--probe-interval=1h"], &[]).await;
    becomes(&mut client, Level::Polling, "").await;
    let age = async || status(&client).await.health.unwrap().oldest_job.unwrap().age.unwrap();
    let first = age().await;
    assert!(first.seconds >= 10, "{first:?}");
    let probes = runner.list.lock().unwrap().0;
    eventually("it is told to be older", async || {
        let now = age().await;
        if now.seconds >= first.seconds + 2 { Ok(()) } else { Err(now) }
    })
    .await;
    assert_eq!(runner.list.lock().unwrap().0, probes, "the runner was probed in the meantime");
    drop(wrapper);
}

/// GitLab's receipt needs the registrations: a runner that drained under an earlier wrapper can exit before the first probe of this one ends.
#[tokio::test]
async fn first_status_of_next_wrapper_has_registrations() {
    let runner = polling_runner().await;
    runner.list_takes(Duration::from_secs(2));
    let config = CONFIG.replace("token", "url = \"https://gitlab.example\"\nid = 7\ntoken");
    let (mut first, client) = watched_with(Some(&runner), Some(&config), &[], &["--ignore-quit"]).await;
    first.child_ready().await;
    runner.listens().await;
    drop(client);
    first.signal(Signal::KILL);
    first.ended().await;
    let folder = first.into_folder();
    let config = folder.path().join("config.toml");
    let start =
        Start::again(folder).flags(&["--start-grace=0s"]).env("CONFIG_FILE", config.to_str().unwrap());
    let second = start.runner(&runner).child(&["--ignore-quit"]);
    let status = status(&second.v1_client().await).await;
    assert_eq!((status.state(), status.registrations.len()), (State::Draining, 1), "{status:?}");
    assert_eq!(status.health.unwrap().level(), Level::None, "the first probe has not ended");
}

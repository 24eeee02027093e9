//! The command of `--on-exit`.

use std::{fs, path::Path};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainRequest, StartRequest},
};
use rustix::process::{Signal, kill_process};

use crate::support::{Start, eventually, pid};

const CALLBACKS: &str = include_str!("../../../docs/wrapper/callbacks.md");

/// Waits until the file has this text.
async fn has(path: &Path, wanted: &str) {
    eventually(wanted, async || match fs::read_to_string(path) {
        Ok(text) if text == wanted => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn command_gets_the_outcome_of_each_exit() {
    let start = Start::new();
    let path = start.folder_path().join("exits");
    let line = "$GRIT_RUNNER_EXIT_CODE|$GRIT_DRAIN_OUTCOME|$GRIT_DRAIN_ID|$GRIT_DRAIN_REASON|$NOTIFY_SOCKET|";
    let command = format!("--on-exit=echo \"{line}\" >>{}", path.display());
    let wrapper = start.flags(&["--start-grace=0s", &command]).child(&[]);
    let mut client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    kill_process(pid(wrapper.child_pid()), Signal::KILL).unwrap();
    has(&path, "137|||||\n").await;

    client.start(StartRequest {}).await.unwrap();
    wrapper.recorded("ready ready").await;
    let reason = "a $(reason) of a client".to_owned();
    client
        .drain(DrainRequest { id: "deploy-7".to_owned(), reason, ..DrainRequest::default() })
        .await
        .unwrap();
    has(&path, "137|||||\n0|clean|deploy-7|a $(reason) of a client||\n").await;
}

/// The container ends with the wrapper. An init passes each signal to the whole process group of the wrapper.
#[tokio::test]
async fn exit_waits_for_the_command_and_a_signal_does_not_end_it() {
    let start = Start::new();
    let path = start.folder_path().join("exits");
    let command = format!("--on-exit=echo begins >{0}; read line <{0}.go; echo ends >{0}", path.display());
    let go = path.with_extension("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &go, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let flags = ["--start-grace=0s", "--when-stopped=exit", &command];
    let mut wrapper = start.flags(&flags).child(&["--exit-after", "0", "--code", "3"]);
    has(&path, "begins\n").await;
    let children = format!("/proc/{0}/task/{0}/children", wrapper.pid());
    let commands: Vec<u32> =
        fs::read_to_string(children).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(!commands.is_empty(), "{}", wrapper.read("log"));
    for signal in [Signal::QUIT, Signal::TERM, Signal::INT, Signal::HUP] {
        for command in &commands {
            kill_process(pid(*command), signal).unwrap();
        }
    }
    assert!(wrapper.runs(), "{}", wrapper.read("log"));
    fs::write(&go, "go\n").unwrap();
    assert_eq!(wrapper.ended().await.code(), Some(3), "{}", wrapper.read("log"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "ends\n");
}

/// As the page shows it, with a stand-in for `gitlab-runner`.
#[tokio::test]
async fn on_exit_unregisters_only_after_a_drain() {
    let block = CALLBACKS.split_once("on_exit_unregisters_only_after_a_drain -->\n```sh\n").unwrap().1;
    let line = block.lines().next().unwrap();
    let value = line.strip_prefix("GRIT_WRAPPER_ON_EXIT='").and_then(|rest| rest.strip_suffix('\'')).unwrap();
    let start = Start::new();
    let folder = start.folder_path();
    let path = folder.join("unregistered");
    grit_testkit::program::script(
        &folder.join("gitlab-runner"),
        &format!("echo \"$*\" >>{}", path.display()),
    )
    .unwrap();
    let search = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let start = start.env("PATH", &search).env("GRIT_WRAPPER_ON_EXIT", value);
    let wrapper = start.flags(&["--start-grace=0s"]).child(&[]);
    let mut client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    kill_process(pid(wrapper.child_pid()), Signal::KILL).unwrap();
    wrapper.logged("the command of --on-exit has succeeded").await;
    assert!(!path.exists());
    client.start(StartRequest {}).await.unwrap();
    wrapper.recorded("ready ready").await;
    let mut upstream = wrapper.client().await;
    upstream.graceful().await;
    upstream.becomes(Status::Stopped).await;
    has(&path, "unregister --all-runners\n").await;
}

//! How long a runner may clean up after SIGTERM.

use std::time::SystemTime;

use grit_proto::wrapper_v1::{DrainRequest, GetStatusRequest, Mode, State};

use crate::support::{Start, eventually};

/// The seconds from a forceful stop to SIGKILL, with this configuration of the runner and these flags of the wrapper.
async fn seconds_to_sigkill(config: &str, flags: &[&str]) -> i64 {
    let start = Start::new().flags(flags);
    let path = start.folder_path().join("config.toml");
    std::fs::write(&path, format!("{config}\n[[runners]]\ntoken = \"glrt-one\"\n")).unwrap();
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    let wrapper = start.command(&["sh", "-c", script, "run", "--config", path.to_str().unwrap()]);
    let mut client = wrapper.v1_client().await;
    eventually("the configuration is read", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.health.as_ref().is_some_and(|health| health.sections == Some(1)) {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let request =
        DrainRequest { id: "now".to_owned(), mode: Mode::Forceful.into(), ..DrainRequest::default() };
    let status = client.drain(request).await.unwrap().into_inner().status.unwrap();
    assert_eq!(status.state(), State::Terminating);
    let deadline = status.drain.unwrap().deadline.unwrap().seconds;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    deadline - i64::try_from(now).unwrap()
}

#[tokio::test]
async fn forceful_stop_waits_for_the_cleanup_of_the_runner() {
    for (config, flags, wanted) in [
        ("", &[][..], 45),
        ("shutdown_timeout = 600", &[], 615),
        ("shutdown_timeout = 600", &["--process-termination-timeout=100s"], 100),
    ] {
        let seconds = seconds_to_sigkill(config, flags).await;
        assert!((wanted - 10..=wanted).contains(&seconds), "{config} {flags:?}: {seconds}");
    }
}

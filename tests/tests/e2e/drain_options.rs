//! Options of a drain: the callback, and the forceful mode.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
};

use grit_tests::{
    lab::{Lab, cloud::Instance},
    poll,
    rollout::PATIENCE,
    terraform::{Workspace, built},
};
use serde_json::{Value as Json, json};

/// A workspace with one drain with these optional attributes.
fn drain(lab: &Lab, instance: &Instance, options: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let mut attributes = json!({
        "instance_id": instance.id,
        "runner_manager": instance.runner_manager(),
        "retry": { "attempts": 2, "min_delay": "100ms" },
        "timeouts": { "delete": "60s" },
    });
    attributes.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let main = lab.configuration(&json!({ "grit_runner_drain": { "m1": attributes } }));
    workspace.write("main.tf.json", &main).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace
}

/// Accepts one request, and returns its header lines in lower case.
fn receive_one(listener: TcpListener) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_lowercase());
        }
        let mut stream = reader.into_inner();
        stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 16]);
        head
    })
}

/// An operator's `grit-wrapper drain` on the host of `m1`.
fn drain_by_hand(lab: &Lab, options: &[&str]) {
    let socket = lab.cloud().host("m1").unwrap().wrapper_socket();
    let mut command = std::process::Command::new(built("grit-wrapper").unwrap());
    command
        .args(["drain", "--id", "operator"])
        .args(options)
        .arg(format!("--address=unix://{}", socket.display()));
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn drain_made_forceful_by_operator_succeeds_with_warning() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = drain(&lab, &instance, &json!({}));
    lab.queue().submit_held(1);
    lab.events().wait_for("the job runs", PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    let destroyed = std::thread::scope(|scope| {
        let destroy = scope.spawn(|| workspace.destroy().unwrap());
        lab.events()
            .wait_for("m1 drains", PATIENCE, |event| grit_tests::rollout::is_signal(event, "SIGQUIT"));
        drain_by_hand(&lab, &["--force"]);
        destroy.join().unwrap().succeeded()
    });
    let warnings = destroyed.warnings();
    let told = warnings.iter().find(|(summary, _)| *summary == "Runner of m1 did not exit cleanly");
    assert!(
        told.is_some_and(|(_, detail)| detail.contains("the drain became forceful on the host")),
        "{warnings:?}"
    );
    assert_eq!(lab.queue().tally().lost, 1);
}

#[test]
fn callback_is_added_to_drain_begun_by_operator() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/joined", listener.local_addr().unwrap());
    let lab = Lab::start().unwrap();
    lab.cloud().allow_callback(&url);
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = drain(&lab, &instance, &json!({ "shutdown_callback": { "url": url } }));
    let jobs = lab.queue().submit_held(1);
    lab.events().wait_for("the job runs", PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    drain_by_hand(&lab, &[]);

    let receiver = receive_one(listener);
    std::thread::scope(|scope| {
        let destroy = scope.spawn(|| workspace.destroy().unwrap());
        lab.queue().release(&jobs);
        destroy.join().unwrap().succeeded();
    });
    assert_eq!(receiver.join().unwrap()[0], "post /joined http/1.1");
}

#[test]
fn callback_is_sent_for_already_stopped_runner() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/late", listener.local_addr().unwrap());
    let lab = Lab::start().unwrap();
    lab.cloud().allow_callback(&url);
    let (instance, host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = drain(&lab, &instance, &json!({ "shutdown_callback": { "url": url } }));
    poll::until("the runner runs", PATIENCE, || host.runner_pid().ok_or("not yet"));
    drain_by_hand(&lab, &[]);
    poll::until("the runner has ended", PATIENCE, || host.runner_pid().map_or(Ok(()), Err));

    let receiver = receive_one(listener);
    workspace.destroy().unwrap().succeeded();
    assert_eq!(receiver.join().unwrap()[0], "post /late http/1.1");
}

#[test]
fn wrapper_sends_callback_after_runner_exit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/drained?manager=m1", listener.local_addr().unwrap());
    let lab = Lab::start().unwrap();
    lab.cloud().allow_callback(&url);
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let callback = json!({ "url": url, "method": "PUT", "headers": { "X-Token": "t-1" } });
    let workspace = drain(&lab, &instance, &json!({ "shutdown_callback": callback }));

    let receiver = receive_one(listener);
    workspace.destroy().unwrap().succeeded();
    let head = receiver.join().unwrap();
    assert_eq!(head[0], "put /drained?manager=m1 http/1.1");
    assert!(head.contains(&"x-token: t-1".to_owned()), "{head:?}");
}

#[test]
fn forceful_mode_warns_at_plan_and_aborts_jobs() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = drain(&lab, &instance, &json!({ "mode": "forceful" }));
    lab.queue().submit_held(1);
    lab.events().wait_for("the job runs", PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    let plan = workspace.run(["plan", "-json", "-destroy"]).unwrap().succeeded();
    let warnings = plan.warnings();
    assert!(warnings.iter().any(|(_, detail)| detail.contains("ABORTED")), "{warnings:?}");
    workspace.destroy().unwrap().succeeded();
    assert_eq!(lab.queue().tally().lost, 1);
}

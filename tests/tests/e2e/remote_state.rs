//! A killed Terraform with a remote state: no object of the apply is in the state, and the next apply continues.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{Arc, Mutex},
};

use grit_tests::{
    lab::http::{self, Answer},
    rollout::{PATIENCE, Rollout},
    terraform::{built, core},
};
use hyper::{Method, Request, StatusCode, body::Incoming};
use rustix::process::Signal;
use serde_json::Value as Json;

/// A server for Terraform's `http` backend, without locks.
struct Backend {
    _runtime: tokio::runtime::Runtime,
    url: String,
    state: Arc<Mutex<Option<Json>>>,
}

impl Backend {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let state = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&state);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/state", listener.local_addr().unwrap());
        runtime.spawn(http::serve(listener, move |request| answer(Arc::clone(&shared), request)));
        Self { _runtime: runtime, url, state }
    }

    /// The number of objects of a resource type in the state.
    fn count(&self, kind: &str) -> usize {
        let state = self.state.lock().unwrap().clone().expect("a state");
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        let of_kind = resources.iter().filter(|resource| resource["type"] == kind);
        of_kind.map(|resource| resource["instances"].as_array().map_or(0, Vec::len)).sum()
    }
}

async fn answer(state: Arc<Mutex<Option<Json>>>, request: Request<Incoming>) -> Answer {
    match *request.method() {
        Method::GET => match state.lock().unwrap().as_ref() {
            Some(state) => http::json(StatusCode::OK, state),
            None => http::empty(StatusCode::NOT_FOUND),
        },
        Method::POST => match http::read_json(request).await {
            Ok(new) => {
                *state.lock().unwrap() = Some(new);
                http::empty(StatusCode::OK)
            }
            Err(error) => http::text(StatusCode::BAD_REQUEST, format!("{error:#}")),
        },
        _ => http::empty(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// `init` needs installable providers: a mirror in the plugin directory of the workspace.
fn init(rollout: &Rollout) {
    let platform = format!("linux_{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" });
    for name in ["grit", "lab"] {
        let program = format!("terraform-provider-{name}");
        let registry = rollout.workspace.path().join("home").join(core().registry());
        let folder = registry.join("runner-tools").join(name).join("0.1.0").join(&platform);
        fs::create_dir_all(&folder).unwrap();
        symlink(built(&program).unwrap(), folder.join(format!("{program}_v0.1.0"))).unwrap();
    }
    rollout.workspace.run(["init", "-no-color"]).unwrap().succeeded();
}

#[test]
fn apply_after_kill_with_remote_state_joins_drain() {
    let backend = Backend::start();
    let mut rollout = Rollout::start().unwrap();
    // So Terraform writes the state only at the end, also on a slow machine.
    rollout.workspace.set_env("TF_STATE_PERSIST_INTERVAL", "3600");
    let block = format!("terraform {{\n  backend \"http\" {{\n    address = \"{}\"\n  }}\n}}\n", backend.url);
    rollout.workspace.write("backend.tf", &block).unwrap();
    init(&rollout);
    rollout.managers(&["m1-v1"]).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(backend.count("lab_instance"), 1);

    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    rollout.wait_for_drain("m1-v1");
    session.signal(Signal::KILL).unwrap();
    session.wait(PATIENCE);
    rollout.workspace.providers().assert_none_left(PATIENCE);
    for kind in ["lab_instance", "grit_runner_drain"] {
        assert_eq!(backend.count(kind), 1, "{kind}: nothing of the apply was written");
    }

    rollout.lab.queue().release(&jobs);
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"], "joined, not asked again");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1-v1"), Some(false));
    assert_eq!(rollout.hosts(), ["m1-v2", "m1-v2.2"], "the first new instance is left over");
    assert_eq!(rollout.lab.queue().tally().lost, 0);
    assert_eq!(backend.count("lab_instance"), 1);
}

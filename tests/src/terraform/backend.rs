//! A server for Terraform's `http` backend.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use hyper::{Method, Request, StatusCode, body::Incoming};
use serde_json::Value as Json;

use super::{Workspace, built, core};
use crate::lab::http::{self, Answer};

/// The server with its state. It has no locks.
#[derive(Debug)]
pub struct Backend {
    _runtime: tokio::runtime::Runtime,
    url: String,
    state: Arc<Mutex<Option<Json>>>,
}

impl Backend {
    /// Starts it without a state.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let state = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&state);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let url = format!("http://{}/state", listener.local_addr()?);
        runtime.spawn(http::serve(listener, move |request| answer(Arc::clone(&shared), request)));
        Ok(Self { _runtime: runtime, url, state })
    }

    /// Initializes a workspace with this backend. `providers`: those of the workspace.
    ///
    /// # Errors
    ///
    /// If `init` fails.
    pub fn init(&self, workspace: &Workspace, providers: &[&str]) -> anyhow::Result<()> {
        let block =
            format!("terraform {{\n  backend \"http\" {{\n    address = \"{}\"\n  }}\n}}\n", self.url);
        workspace.write("backend.tf", &block)?;
        // `init` needs installable providers: a mirror in the plugin directory of the workspace.
        let platform = format!("linux_{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" });
        for name in providers {
            let program = format!("terraform-provider-{name}");
            let registry = workspace.path().join("home").join(core().registry());
            let folder = registry.join("runner-tools").join(name).join("0.1.0").join(&platform);
            fs::create_dir_all(&folder).context("making a mirror")?;
            symlink(built(&program)?, folder.join(format!("{program}_v0.1.0")))
                .context("linking a provider")?;
        }
        let run = workspace.run(["init", "-no-color"])?;
        anyhow::ensure!(run.code == Some(0), "init failed:\n{}\n{}", run.stdout, run.stderr);
        Ok(())
    }

    /// The number of objects of a resource type in the state.
    pub fn count(&self, kind: &str) -> usize {
        let state = lock(&self.state).clone().unwrap_or_default();
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        let of_kind = resources.iter().filter(|resource| resource["type"] == kind);
        of_kind.map(|resource| resource["instances"].as_array().map_or(0, Vec::len)).sum()
    }

    /// The size of the state in bytes, without white space.
    pub fn size(&self) -> usize {
        lock(&self.state).as_ref().map_or(0, |state| state.to_string().len())
    }
}

async fn answer(state: Arc<Mutex<Option<Json>>>, request: Request<Incoming>) -> Answer {
    match *request.method() {
        Method::GET => match lock(&state).as_ref() {
            Some(state) => http::json(StatusCode::OK, state),
            None => http::empty(StatusCode::NOT_FOUND),
        },
        Method::POST => match http::read_json(request).await {
            Ok(new) => {
                *lock(&state) = Some(new);
                http::empty(StatusCode::OK)
            }
            Err(error) => http::text(StatusCode::BAD_REQUEST, format!("{error:#}")),
        },
        _ => http::empty(StatusCode::METHOD_NOT_ALLOWED),
    }
}

fn lock(state: &Mutex<Option<Json>>) -> MutexGuard<'_, Option<Json>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

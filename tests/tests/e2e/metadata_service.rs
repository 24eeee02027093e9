//! Stand-in for the metadata services of EC2 (IMDSv2) and Compute Engine: tokens, items that do not exist before their event, errors, and
//! requests without a response.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use grit_tests::{
    lab::http::{self, Answer},
    poll,
    rollout::PATIENCE,
};
use hyper::{Request, StatusCode, body::Incoming};
use tokio::net::TcpListener;

/// What the metadata service reports.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    /// `autoscaling/target-lifecycle-state` of EC2, or `stop-state` of Compute Engine.
    pub(crate) target: Option<&'static str>,
    pub(crate) notice: Option<&'static str>,
    /// All requests fail: with an error if true, without a response if false.
    pub(crate) outage: Option<bool>,
    pub(crate) requests: usize,
    pub(crate) tokens: usize,
    /// Requests without a valid token.
    pub(crate) refused: usize,
}

/// The metadata service, on loopback.
pub(crate) struct Service {
    pub(crate) state: Arc<Mutex<Metadata>>,
    pub(crate) url: String,
    _runtime: tokio::runtime::Runtime,
}

impl Service {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(Metadata { target: Some("InService"), ..Metadata::default() }));
        let shared = Arc::clone(&state);
        runtime.spawn(http::serve(listener, move |request| respond(request, Arc::clone(&shared))));
        Self { state, url, _runtime: runtime }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Metadata)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Waits until the script has sent this number of further requests.
    pub(crate) fn wait_requests(&self, count: usize) {
        let before = self.state.lock().unwrap().requests;
        poll::until("the script reads the metadata", PATIENCE, || {
            match self.state.lock().unwrap().requests {
                now if now >= before + count => Ok(()),
                now => Err(now),
            }
        });
    }
}

async fn respond(request: Request<Incoming>, state: Arc<Mutex<Metadata>>) -> Answer {
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let outage = {
        let mut state = state.lock().unwrap();
        state.requests += 1;
        state.outage
    };
    match outage {
        Some(true) => return http::empty(StatusCode::INTERNAL_SERVER_ERROR),
        Some(false) => tokio::time::sleep(Duration::from_secs(600)).await,
        None => {}
    }
    let mut state = state.lock().unwrap();
    let path = request.uri().path();
    if let Some(item) = path.strip_prefix("/computeMetadata/v1/instance/") {
        return match (header("Metadata-Flavor"), item, state.target) {
            ("Google", "shutdown-details/stop-state", Some(target)) => http::text(StatusCode::OK, target),
            ("Google", ..) => http::empty(StatusCode::NOT_FOUND),
            _ => http::empty(StatusCode::FORBIDDEN),
        };
    }
    if path == "/latest/api/token" {
        if request.method() != "PUT" || header("X-aws-ec2-metadata-token-ttl-seconds").parse::<u32>().is_err()
        {
            return http::empty(StatusCode::BAD_REQUEST);
        }
        state.tokens += 1;
        return http::text(StatusCode::OK, format!("token-{}", state.tokens));
    }
    // Each token is valid until the next one.
    if header("X-aws-ec2-metadata-token") != format!("token-{}", state.tokens) {
        state.refused += 1;
        return http::empty(StatusCode::UNAUTHORIZED);
    }
    let item = match path.strip_prefix("/latest/meta-data/") {
        Some("instance-id") => Some("i-07"),
        Some("placement/region") => Some("eu-west-1"),
        Some("spot/instance-action") => state.notice,
        Some("autoscaling/target-lifecycle-state") => state.target,
        _ => None,
    };
    item.map_or_else(|| http::empty(StatusCode::NOT_FOUND), |item| http::text(StatusCode::OK, item))
}

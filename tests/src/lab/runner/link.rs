//! Reports the stand-in's events to the lab's event log.

use std::time::Duration;

use hyper::StatusCode;

use crate::lab::{
    event::What,
    http,
    queue::{RunnerProcess, serve::Record},
};

/// The connection to the lab; without one, no event is reported.
#[derive(Debug, Clone)]
pub(super) struct Link {
    url: Option<String>,
    process: RunnerProcess,
}

impl Link {
    pub(super) fn new(url: Option<String>, process: RunnerProcess) -> Link {
        Link { url, process }
    }

    pub(super) fn process(&self) -> &RunnerProcess {
        &self.process
    }

    /// Records `what`, and returns when it is in the log. A missing lab is not an error.
    pub(super) async fn tell(&self, what: What) {
        let Some(url) = &self.url else { return };
        let record = Record { subject: self.process.system_id.clone(), what };
        let sent = http::send("POST", &format!("{url}/lab/events"), Some(&record)).await;
        if !matches!(&sent, Ok(reply) if reply.status == StatusCode::OK) {
            super::say(&format!("the lab did not take an event: {sent:?}"));
        }
    }

    /// Holds a connection open while the process runs, so that the lab detects a killed process.
    pub(super) async fn be_present(self) {
        let Some(url) = &self.url else { return };
        let path = format!("{url}/lab/presence/{}/{}", self.process.system_id, self.process.pid);
        loop {
            let _ = http::get(&path).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

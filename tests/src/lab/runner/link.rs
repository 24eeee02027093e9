//! What the stand-in tells the lab about itself, so that the event log has its side of the story.

use std::time::Duration;

use hyper::StatusCode;

use crate::lab::{
    event::What,
    http,
    queue::{RunnerProcess, serve::Record},
};

/// The way to the lab; without one, nothing is told.
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

    /// Records `what`, and returns when it stands in the log. A lab that is gone is no reason to fail.
    pub(super) async fn tell(&self, what: What) {
        let Some(url) = &self.url else { return };
        let record = Record { subject: self.process.system_id.clone(), what };
        let sent = http::send("POST", &format!("{url}/lab/events"), Some(&record)).await;
        if !matches!(&sent, Ok(reply) if reply.status == StatusCode::OK) {
            super::say(&format!("the lab did not take an event: {sent:?}"));
        }
    }

    /// Holds a connection open for as long as the process lives: its end is how the lab learns of a sudden death.
    pub(super) async fn be_present(self) {
        let Some(url) = &self.url else { return };
        let path = format!("{url}/lab/presence/{}/{}", self.process.system_id, self.process.pid);
        loop {
            let _ = http::get(&path).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

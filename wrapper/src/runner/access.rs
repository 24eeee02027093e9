//! How the runner is read: its configuration, its HTTP server, and its process.

use std::{fmt, ops::ControlFlow, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use hyper::StatusCode;

use super::{
    config_reader::Reader,
    http_client::{GetError, Http, Server},
    runner_config::{ConfigError, RunnerConfig},
    runner_source::{Endpoint, Source},
};
use crate::supervise::process;

/// Receives each line of a response. After `Break`, the rest is skipped.
pub(crate) type OnLine<'a> = &'a mut (dyn FnMut(&str) -> ControlFlow<()> + Send);

/// The real runner, or that of a simulation. All futures are cancel safe.
pub(crate) trait Access: fmt::Debug + Send + Sync {
    /// Notes the running process, on which the configuration can depend. Takes at most a second.
    fn note_process(&self, pid: u32) -> BoxFuture<'_, ()>;

    /// The present configuration. Takes at most a second.
    fn config(&self) -> BoxFuture<'_, Result<Arc<RunnerConfig>, ConfigError>>;

    /// Address of the runner's HTTP server, if it has one.
    fn endpoint(&self, config: Option<&RunnerConfig>) -> Option<Endpoint>;

    fn get<'a>(
        &'a self,
        server: &'a Server,
        path: &'a str,
    ) -> BoxFuture<'a, Result<(StatusCode, String), GetError>>;

    fn lines<'a>(
        &'a self,
        server: &'a Server,
        path: &'a str,
        line: OnLine<'a>,
    ) -> BoxFuture<'a, Result<StatusCode, GetError>>;

    fn is_suspended(&self, pid: u32) -> bool;

    /// Why the process is not the runner itself, if it is a launcher.
    fn launcher_fault(&self, pid: u32) -> BoxFuture<'_, Option<String>>;

    /// The same runner, over another connection.
    fn another(&self) -> Arc<dyn Access>;
}

/// The runner of this host.
#[derive(Clone, Debug)]
pub(super) struct OfHost {
    reader: Reader,
    http: Http,
}

impl OfHost {
    pub(super) fn new(source: Source) -> Self {
        Self { reader: Reader::new(source), http: Http::default() }
    }
}

impl Access for OfHost {
    fn note_process(&self, pid: u32) -> BoxFuture<'_, ()> {
        self.reader.note_process(pid).boxed()
    }

    fn config(&self) -> BoxFuture<'_, Result<Arc<RunnerConfig>, ConfigError>> {
        self.reader.read().boxed()
    }

    fn endpoint(&self, config: Option<&RunnerConfig>) -> Option<Endpoint> {
        self.reader.endpoint(config)
    }

    fn get<'a>(
        &'a self,
        server: &'a Server,
        path: &'a str,
    ) -> BoxFuture<'a, Result<(StatusCode, String), GetError>> {
        self.http.get(server, path).boxed()
    }

    fn lines<'a>(
        &'a self,
        server: &'a Server,
        path: &'a str,
        line: OnLine<'a>,
    ) -> BoxFuture<'a, Result<StatusCode, GetError>> {
        self.http.lines(server, path, line).boxed()
    }

    fn is_suspended(&self, pid: u32) -> bool {
        process::is_suspended(pid)
    }

    fn launcher_fault(&self, pid: u32) -> BoxFuture<'_, Option<String>> {
        process::launcher_fault(pid).boxed()
    }

    fn another(&self) -> Arc<dyn Access> {
        Arc::new(Self { reader: self.reader.clone(), http: Http::default() })
    }
}

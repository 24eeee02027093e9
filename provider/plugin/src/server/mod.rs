//! Terraform's calls: decode, find the type, call it, encode. A file has the name of its call, or of the group of calls in it.
//!
//! Each call of a resource, data source or provider block runs in a separate task ([`Service::run`]): it continues when the client disconnects,
//! with its stop token cancelled, and a panic in it becomes a diagnostic. [`apply_resource_change`] decides what an apply leaves in the
//! state after a failure. Calls that this server lacks return "Unimplemented", which Terraform accepts for optional calls.

mod apply_resource_change;
pub(crate) mod call;
mod configure_provider;
mod erased;
mod get_provider_schema;
mod import_resource_state;
mod invoke_action;
mod plan_resource_change;
mod read_data_source;
mod read_resource;
mod registry;
mod stops;
mod stored_state;
#[cfg(test)]
mod tests;
mod upgrade_resource_state;
mod validate;
mod walks;

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, stream::BoxStream};
use grit_proto::tfplugin6::{self as pb, provider_server::Provider};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use call::{CALL, Call, Notes, Operation, panic_text};
pub use registry::Registry;
use stops::Stops;
use walks::Walks;

use crate::{
    problem::{Problem, Problems, texts},
    wire,
};

/// A provider as the gRPC service of Terraform's plugin protocol. Clones share everything.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    registry: Registry,
    stops: Stops,
    walks: Walks,
    calls: TaskTracker,
}

impl Service {
    /// The service of this provider, without a process: for tests.
    pub fn new(registry: Registry) -> Self {
        Self(Arc::new(Inner {
            registry,
            stops: Stops::default(),
            walks: Walks::default(),
            calls: TaskTracker::new(),
        }))
    }

    /// Stops the running calls, and all later create, update and destroy calls.
    pub(crate) fn stop(&self) {
        match self.0.calls.len() {
            0 => tracing::debug!("no calls to cancel"),
            calls => tracing::info!(calls, "cancelling the running calls"),
        }
        self.0.stops.stop();
    }

    fn stop_provider(&self) -> pb::stop_provider::Response {
        self.stop();
        pb::stop_provider::Response::default()
    }

    /// Waits until no call is running.
    pub(crate) async fn idle(&self) {
        // A closed tracker still accepts calls; without `close`, the wait does not end.
        self.0.calls.close();
        self.0.calls.wait().await;
    }

    fn call(&self, operation: Operation) -> Call {
        Call::new(operation, self.0.stops.token(operation), self.0.walks.now())
    }

    /// Runs `work` for the type `name` as a call without changes.
    async fn run<T: Send + 'static>(
        &self,
        verb: &'static str,
        name: &str,
        work: impl Future<Output = Result<T, Problems>> + Send + 'static,
    ) -> Outcome<T> {
        self.run_call(self.call(Operation::Other), verb, name, work).await
    }

    /// Runs `work` for the type `name`. [`call()`](call::call) returns `call` in it.
    ///
    /// If this future is dropped (the client disconnected), the work continues with its token cancelled, so that it can complete cleanly. A
    /// panic, and a failure without a problem, become diagnostics.
    async fn run_call<T: Send + 'static>(
        &self,
        call: Call,
        verb: &'static str,
        name: &str,
        work: impl Future<Output = Result<T, Problems>> + Send + 'static,
    ) -> Outcome<T> {
        let gone = call.stop.clone().drop_guard();
        let span = tracing::info_span!("call", verb, type_name = name);
        let what = format!("{verb} of {name}");
        let caught = AssertUnwindSafe(work).catch_unwind();
        let task = self.0.calls.spawn(CALL.scope(call.clone(), caught.instrument(span)));
        let finished = task.await;
        gone.disarm();
        let mut notes = call.take_notes();
        let result = match finished {
            Ok(Ok(result)) => result,
            Ok(Err(payload)) => Err(panicked(&what, payload.as_ref(), notes.panicked_at.take()).into()),
            Err(lost) => Err(texts::aborted(&what, lost).into()),
        };
        let (value, errors) = match result {
            Ok(value) => (Some(value), Problems::default()),
            Err(none) if none.is_empty() => {
                (None, Problem::bug(format!("The {what} returned no result and no error")).into())
            }
            Err(errors) => (None, errors),
        };
        let diagnostics = wire::diagnostics(errors, std::mem::take(&mut notes.warnings));
        Outcome { value, diagnostics, notes }
    }
}

fn panicked(what: &str, payload: &(dyn Any + Send), place: Option<String>) -> Problem {
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    Problem::bug(format!("The {what} panicked{place}: {}", panic_text(payload)))
}

/// The result of a call.
struct Outcome<T> {
    /// `None` if the call failed: then there is an error in the diagnostics.
    value: Option<T>,
    diagnostics: Vec<pb::Diagnostic>,
    notes: Notes,
}

type Answer<T> = Result<Response<T>, Status>;

/// The progress of an action, then its result.
type Events = BoxStream<'static, Result<pb::invoke_action::Event, Status>>;

/// The calls of the protocol: `call => method`, then those whose request is empty.
macro_rules! calls {
    ($($call:ident => $method:ident),+; $($plain_call:ident => $plain_method:ident),+ $(,)?) => {
        #[tonic::async_trait]
        impl Provider for Service {
            $(async fn $call(&self, request: Request<pb::$call::Request>) -> Answer<pb::$call::Response> {
                Ok(Response::new(self.$method(request.into_inner()).await))
            })+

            $(async fn $plain_call(&self, _: Request<pb::$plain_call::Request>) -> Answer<pb::$plain_call::Response> {
                Ok(Response::new(self.$plain_method()))
            })+

            async fn import_resource_state(
                &self,
                request: Request<pb::import_resource_state::Request>,
            ) -> Answer<pb::import_resource_state::Response> {
                Ok(Response::new(Self::import(request.get_ref())))
            }

            async fn invoke_action(
                &self,
                request: Request<pb::invoke_action::Request>,
            ) -> Answer<Events> {
                Ok(Response::new(self.invoke(request.into_inner())))
            }
        }
    };
}

calls! {
    apply_resource_change => apply,
    configure_provider => configure,
    plan_action => plan_action,
    plan_resource_change => plan,
    read_data_source => read_data,
    read_resource => read,
    upgrade_resource_state => upgrade,
    validate_action_config => validate_action,
    validate_data_resource_config => validate_data_source,
    validate_provider_config => validate_provider,
    validate_resource_config => validate_resource;
    get_metadata => metadata,
    get_provider_schema => provider_schema,
    stop_provider => stop_provider,
}

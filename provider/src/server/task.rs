//! Runs one call in a separate task.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::{FutureExt, future::BoxFuture};
use tracing::Instrument;

use super::Service;
use crate::{
    call::{CALL, Call, Notes, Operation, panic_text},
    explain::{Explained, protocol},
    schema::{AttributePath, Diagnostics, DiagnosticsExt},
};

/// The result of a call.
pub(super) struct Outcome<T> {
    /// `None` needs an error in the diagnostics, or the note that a read found nothing.
    pub(super) value: Option<T>,
    pub(super) diags: Diagnostics,
    pub(super) notes: Notes,
}

impl Service {
    /// Runs `work` for the type `name`. [`call()`](crate::call::call) returns its stop token and notes.
    ///
    /// If this future is dropped (the client disconnected), the work continues with its token cancelled, so that it can complete cleanly. A
    /// panic, and a missing result without an error, become diagnostics.
    pub(super) async fn run<T, F>(
        &self,
        operation: Operation,
        verb: &'static str,
        name: &str,
        work: F,
    ) -> Outcome<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a Self, &'a mut Diagnostics) -> BoxFuture<'a, Option<T>> + Send + 'static,
    {
        let call = Call::new(operation, self.0.stops.token(operation), self.0.walks.now());
        let gone = call.stop.clone().drop_guard();
        let span = tracing::info_span!("call", verb, type_name = name);
        let what = format!("{verb} of {name}");
        // `work` is called inside, so that a panic before its first await is caught.
        let service = self.clone();
        let caught = AssertUnwindSafe(async move {
            let mut diags = Diagnostics::default();
            let value = work(&service, &mut diags).await;
            (value, diags)
        })
        .catch_unwind();
        let task = self.0.calls.spawn(CALL.scope(call.clone(), caught.instrument(span)));
        let finished = task.await;
        gone.disarm();
        let mut notes = call.take_notes();
        let (value, mut diags, failure) = match finished {
            Ok(Ok((value, diags))) => (value, diags, None),
            Ok(Err(payload)) => {
                let failure = panicked(&what, payload.as_ref(), notes.panicked_at.take());
                (None, Diagnostics::default(), Some(failure))
            }
            Err(lost) => (None, Diagnostics::default(), Some(protocol::aborted(&what, lost))),
        };
        let checkpoint = notes.checkpoint_error.take();
        let checkpoint =
            checkpoint.map(|error| protocol::cannot_encode(&format!("a checkpoint of the {what}"), error));
        for failure in failure.into_iter().chain(checkpoint) {
            failure.error(AttributePath::root(), &mut diags);
        }
        if value.is_none() && !diags.has_errors() && !notes.gone {
            protocol::bug(format!("The {what} returned no result and no error"))
                .error(AttributePath::root(), &mut diags);
        }
        Outcome { value, diags, notes }
    }
}

fn panicked(what: &str, payload: &(dyn Any + Send), place: Option<String>) -> Explained {
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    protocol::bug(format!("The {what} panicked{place}: {}", panic_text(payload)))
}

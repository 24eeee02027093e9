//! One call in a task of its own.

use std::{any::Any, fmt::Display, panic::AssertUnwindSafe};

use futures::{FutureExt, future::BoxFuture};
use tracing::Instrument;

use super::Service;
use crate::{
    call::{CALL, Call, Notes, Operation, panic_text},
    schema::{Diagnostics, DiagnosticsExt},
};

/// What became of a call.
pub(super) struct Outcome<T> {
    /// The result. `None` comes with an error among the diagnostics, or with the note that a read found nothing.
    pub(super) value: Option<T>,
    pub(super) diags: Diagnostics,
    pub(super) notes: Notes,
}

impl Service {
    /// Runs `work` for the type `name`, with [`call()`](crate::call::call) leading to its stop token and notes.
    ///
    /// When the future returned here is dropped (the caller went away) the work goes on with its token fired, so that it can bring what
    /// it began to a clean end. A panic, and a missing result that nothing explains, become diagnostics.
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
        // `work` is called inside, so that it is caught as well when it panics before its first await.
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
        let (value, mut diags) = match finished {
            Ok(Ok(finished)) => finished,
            Ok(Err(payload)) => (None, panicked(&what, payload.as_ref(), notes.panicked_at.take())),
            Err(lost) => (None, one("Call was aborted", format!("The {what} was aborted: {lost}."))),
        };
        if let Some(error) = notes.checkpoint_error.take() {
            bug(&mut diags, format!("The {what} could not encode a checkpoint: {error}"));
        }
        if value.is_none() && !diags.has_errors() && !notes.gone {
            bug(&mut diags, format!("The {what} returned no result and no error"));
        }
        Outcome { value, diags, notes }
    }
}

fn panicked(what: &str, payload: &(dyn Any + Send), place: Option<String>) -> Diagnostics {
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    let mut diags = Diagnostics::default();
    bug(&mut diags, format!("The {what} panicked{place}: {}", panic_text(payload)));
    diags
}

fn bug(diags: &mut Diagnostics, detail: impl Display) {
    diags.fail(
        "Provider bug",
        format!("{detail}. Please report this bug with the log of a run with TF_LOG_PROVIDER=debug. The log contains no secrets.\n\nCode: \
         bug"),
    );
}

fn one(summary: &'static str, detail: String) -> Diagnostics {
    let mut diags = Diagnostics::default();
    diags.fail(summary, detail);
    diags
}

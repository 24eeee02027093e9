//! The context of a call from Terraform: the stop token, the phase of Terraform, warnings, and the results to save.

use std::{any::Any, fmt, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use crate::problem::{Problem, Problems, texts};

/// The current call. Outside of a call, for unit tests: a call that is never stopped and ignores checkpoints.
///
/// It is stored in the task, so it is not available in tasks that a resource spawns.
pub fn call() -> Call {
    CALL.try_with(Clone::clone)
        .unwrap_or_else(|_| Call::new(Operation::Other, CancellationToken::new(), Walk::Unknown))
}

/// One call from Terraform.
#[derive(Debug, Clone)]
pub struct Call {
    /// Cancelled when Terraform requests a stop (Ctrl-C), on SIGTERM, when the client disconnects, and before the process exits.
    ///
    /// It is already cancelled for create, update, destroy and invoke calls after a stop request; not for other calls.
    pub stop: CancellationToken,
    /// What Terraform calls.
    pub operation: Operation,
    /// Whether it plans or applies.
    pub walk: Walk,
    /// The private data of the object; empty in other calls than read, plan, create and update.
    pub private: Arc<Private>,
    /// Where an action reports its progress. In other calls it is discarded.
    pub progress: Progress,
    notes: Arc<Mutex<Notes>>,
}

/// The private data that a core sends with an object, as far as it is of this provider.
#[derive(Debug, Default)]
pub struct Private {
    /// Identifies the object in a call that plans it, and is empty in other calls. A core that stores the private data of a plan sends it again
    /// when it plans the object again.
    pub object: String,
    /// What the last call [kept](Call::keep): of the plan if the core stores its private data or the object is applied, else of the read.
    pub kept: Option<Json>,
    /// The core stores what this plan keeps, and sends it again when it plans the object in the apply (protocol 6.11).
    pub is_stored_by_plan: bool,
}

/// The kinds of calls that differ in stopping and saving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The creation of an object.
    Create,
    /// A change of an object in place.
    Update,
    /// The end of an object.
    Destroy,
    /// The work of an action.
    Invoke,
    /// The read of a managed resource.
    Read,
    /// Calls without changes: validate, plan, data sources.
    Other,
}

/// The walk of Terraform that a call belongs to. Values that are unknown in a plan are known in its apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Walk {
    /// A validation or a plan: an error changes nothing.
    Plan,
    /// An apply: after an error, the changes are incomplete.
    Apply,
    /// Plan or apply. Treat it as an apply.
    #[default]
    Unknown,
}

/// Sends lines that Terraform prints while an action runs.
#[derive(Clone)]
pub struct Progress {
    send: Arc<dyn Fn(String) + Send + Sync>,
    stop: CancellationToken,
}

/// Results of a call besides its return value.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) warnings: Problems,
    /// A state, encoded.
    pub(crate) checkpoint: Option<Vec<u8>>,
    pub(crate) kept: Option<Json>,
    /// The location of a panic.
    pub(crate) panicked_at: Option<String>,
}

tokio::task_local! {
    pub(crate) static CALL: Call;
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no panic message")
}

/// The result of `work`, which runs as one call, and the warnings of this call: for tests.
pub async fn warnings_of<F: Future>(work: F) -> (F::Output, Problems) {
    let call = Call::new(Operation::Other, CancellationToken::new(), Walk::Unknown);
    let result = CALL.scope(call.clone(), work).await;
    (result, call.take_notes().warnings)
}

impl Call {
    pub(crate) fn new(operation: Operation, stop: CancellationToken, walk: Walk) -> Self {
        let progress = Progress::new(|_| {}, stop.clone());
        Self { stop, operation, walk, private: Arc::default(), progress, notes: Arc::default() }
    }

    /// This call, for an object with this private data.
    pub(crate) fn of(self, private: Private) -> Self {
        Self { private: private.into(), ..self }
    }

    /// This call, whose progress is sent.
    pub(crate) fn reporting(self, send: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self { progress: Progress::new(send, self.stop.clone()), ..self }
    }

    /// Adds a warning to the answer, also if the call then fails or panics.
    pub fn warn(&self, problem: Problem) {
        self.note(|notes| notes.warnings.add(problem));
    }

    /// Stores a state, which is returned to Terraform if the call then fails or panics.
    ///
    /// Call it after each side effect in create and update. Unknown values are saved as null. A later checkpoint or a returned state
    /// replaces it. It has no effect in other calls.
    pub fn checkpoint<S: Serialize>(&self, state: &S) {
        self.note(|notes| match rmp_serde::to_vec_named(state) {
            Ok(checkpoint) => notes.checkpoint = Some(checkpoint),
            Err(error) => notes.warnings.add(texts::cannot_encode("a checkpoint", error)),
        });
    }

    /// Stores private data with the object. Terraform sends it with the next call for the object: the data of a read with its plan, also that of the
    /// apply; the data of a plan with the apply. Terraform shows it nowhere, but it is in the state: it must contain no secret.
    ///
    /// It has no effect in other calls than read and plan.
    pub fn keep(&self, kept: Json) {
        self.note(|notes| notes.kept = Some(kept));
    }

    pub(crate) fn note(&self, write: impl FnOnce(&mut Notes)) {
        write(&mut self.notes.lock());
    }

    pub(crate) fn take_notes(&self) -> Notes {
        std::mem::take(&mut self.notes.lock())
    }
}

impl Progress {
    /// Passes the lines to `send`, until `stop` is cancelled.
    pub fn new(send: impl Fn(String) + Send + Sync + 'static, stop: CancellationToken) -> Self {
        Self { send: Arc::new(send), stop }
    }

    /// Sends a line. After a stop it sends none: Terraform 1.14 and 1.15 panic if a line comes between the stop and the result.
    pub fn report(&self, line: String) {
        if !self.stop.is_cancelled() {
            (self.send)(line);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("stop", &self.stop).finish_non_exhaustive()
    }
}

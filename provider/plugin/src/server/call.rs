//! The context of a call from Terraform: the stop token, the phase of Terraform, and the results to save.

use std::{any::Any, sync::Arc};

use serde::Serialize;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use parking_lot::Mutex;

/// The current call. Outside of a call: one that is never stopped and whose checkpoints are ignored, for unit tests.
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
    pub operation: Operation,
    pub walk: Walk,
    /// The private data of the object; empty in other calls than read, plan, create and update.
    pub private: Arc<Private>,
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
    Create,
    Update,
    Destroy,
    Invoke,
    /// The read of a managed resource.
    Read,
    /// Calls without changes: validate, plan, import, data sources.
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

/// Results of a call besides its return value.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// A state, encoded.
    pub(crate) checkpoint: Option<Vec<u8>>,
    pub(crate) checkpoint_error: Option<String>,
    pub(crate) gone: bool,
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

impl Call {
    pub(crate) fn new(operation: Operation, stop: CancellationToken, walk: Walk) -> Self {
        Self { stop, operation, walk, private: Arc::default(), notes: Arc::default() }
    }

    /// This call, for an object with this private data.
    pub(crate) fn of(self, private: Private) -> Self {
        Self { private: private.into(), ..self }
    }

    /// Stores a state, which is returned to Terraform even if the call then fails or panics.
    ///
    /// Call it after each side effect in create and update. Unknown values are saved as null. A later checkpoint or a returned state
    /// replaces it. It has no effect in other calls.
    pub fn checkpoint<S: Serialize>(&self, state: &S) {
        self.note(|notes| match rmp_serde::to_vec_named(state) {
            Ok(checkpoint) => notes.checkpoint = Some(checkpoint),
            Err(error) => notes.checkpoint_error = Some(error.to_string()),
        });
    }

    /// The read of a managed resource did not find the object: the read returns `None`, and Terraform removes the object from the state.
    ///
    /// It has no effect in other calls.
    pub fn gone(&self) {
        self.note(|notes| notes.gone = self.operation == Operation::Read);
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

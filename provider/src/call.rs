//! What a call from Terraform knows beyond its arguments: whether it should stop, and where to save what it did so far.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// The call in progress. Outside of one: a call that is never stopped and whose checkpoints go nowhere, which suits unit tests.
///
/// The call is found through the task, so it is not visible in tasks that a resource spawns.
pub fn call() -> Call {
    CALL.try_with(Clone::clone)
        .unwrap_or_else(|_| Call::new(Operation::Other, CancellationToken::new(), Walk::Unknown))
}

/// One call from Terraform.
#[derive(Debug, Clone)]
pub struct Call {
    /// Fires when Terraform asks to stop (Ctrl-C), on SIGTERM, when the caller vanishes, and when the process is about to end.
    ///
    /// Create, update and destroy calls that begin after Terraform asked to stop find it fired; other calls do not.
    pub stop: CancellationToken,
    /// What Terraform asked for.
    pub operation: Operation,
    /// Whether it was asked in a plan or in an apply.
    pub walk: Walk,
    notes: Arc<Mutex<Notes>>,
}

/// What Terraform asked for, as far as stopping and saving differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Destroy,
    /// The read of a managed resource.
    Read,
    /// Everything else, which changes nothing: validate, plan, import, data sources.
    Other,
}

/// The walk of Terraform that a call belongs to. Values that are unknown in a plan are known in its apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Walk {
    /// A validation or a plan: an error changes nothing.
    Plan,
    /// An apply: an error leaves the work half done.
    Apply,
    /// One of the two. Treat it as an apply.
    #[default]
    Unknown,
}

/// What a call leaves behind beside its result.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// State and private data, encoded.
    pub(crate) checkpoint: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) checkpoint_error: Option<String>,
    pub(crate) gone: bool,
    /// Where the call panicked, as the panic hook saw it.
    pub(crate) panicked_at: Option<String>,
}

tokio::task_local! {
    pub(crate) static CALL: Call;
}

/// What a panic says.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no panic message")
}

impl Call {
    pub(crate) fn new(operation: Operation, stop: CancellationToken, walk: Walk) -> Self {
        Self { stop, operation, walk, notes: Arc::default() }
    }

    /// Remembers a state and its private data that must reach Terraform even if the call then fails or panics.
    ///
    /// Call it right after each side effect in create and update. Unknown values are saved as null. A later checkpoint replaces an
    /// earlier one, and a returned state replaces both. In other calls it has no effect.
    pub fn checkpoint<S: Serialize, P: Serialize>(&self, state: &S, private: &P) {
        let encoded =
            rmp_serde::to_vec_named(state).and_then(|state| Ok((state, rmp_serde::to_vec_named(private)?)));
        self.note(|notes| match encoded {
            Ok(checkpoint) => notes.checkpoint = Some(checkpoint),
            Err(error) => notes.checkpoint_error = Some(error.to_string()),
        });
    }

    /// Says that the read of a managed resource found it gone, so that Terraform forgets it. The read returns `None` then.
    ///
    /// In other calls it has no effect.
    pub fn gone(&self) {
        self.note(|notes| notes.gone = self.operation == Operation::Read);
    }

    pub(crate) fn note(&self, write: impl FnOnce(&mut Notes)) {
        write(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn take_notes(&self) -> Notes {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

//! `Watch`: the current status, and each later one. The stream ends with the client, or with the supervisor.

use futures::stream;
use grit_proto::wrapper_v1::Status;
use tonic::codegen::BoxStream;

use crate::daemon::control::Control;

pub(super) fn watch(control: &Control) -> BoxStream<Status> {
    let watched = (control.changes(), None::<Status>);
    Box::pin(stream::unfold(watched, |(mut changes, sent)| async move {
        loop {
            if sent.is_some() {
                changes.next().await?;
            }
            let status = Status::from(changes.status());
            // A change can concern nothing that the status shows.
            if sent.as_ref() != Some(&status) {
                return Some((Ok(status.clone()), (changes, Some(status))));
            }
        }
    }))
}

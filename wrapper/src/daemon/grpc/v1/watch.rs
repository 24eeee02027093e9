//! `Watch`: sends the status immediately, and after every change, until the client disconnects or the supervisor exits.

use futures::stream;
use grit_proto::wrapper_v1::Status;
use tonic::codegen::BoxStream;

use super::WrapperV1;
use crate::daemon::grpc::messages;

pub(super) fn watch(service: &WrapperV1) -> BoxStream<Status> {
    let mut supervision = service.supervisor.watch();
    supervision.mark_changed();
    let watched = (supervision, service.health.clone(), None);
    Box::pin(stream::unfold(watched, move |(mut supervision, mut health, mut told)| async move {
        loop {
            tokio::select! {
                biased;
                changed = supervision.changed() => changed.ok()?,
                // Without a prober only the supervisor is watched.
                Ok(()) = health.changed() => {}
            }
            let status = messages::own(&supervision.borrow_and_update(), &health.borrow_and_update());
            // Some changes do not affect the status.
            if told.as_ref() != Some(&status) {
                told = Some(status.clone());
                return Some((Ok(status), (supervision, health, told)));
            }
        }
    }))
}

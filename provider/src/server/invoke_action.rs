//! InvokeAction: runs an action, and streams its progress and its result.

use futures::stream::StreamExt as _;
use grit_proto::tfplugin6 as pb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::{Events, Service};
use crate::{
    call::{Operation, call},
    schema::Progress,
    wire::{self, Raw},
};

impl Service {
    pub(super) fn invoke(&self, request: pb::invoke_action::Request) -> Events {
        self.0.walks.saw_apply();
        let (events, stream) = mpsc::unbounded_channel();
        let service = self.clone();
        // Not a part of the stream: the work must go on, with its stop token fired, when the caller drops the stream.
        tokio::spawn(async move {
            tokio::select! {
                diagnostics = service.run_action(request, events.clone()) => {
                    let _ = events.send(Ok(wire::completed(diagnostics)));
                }
                () = events.closed() => {}
            }
        });
        UnboundedReceiverStream::new(stream).boxed()
    }

    async fn run_action(
        &self,
        request: pb::invoke_action::Request,
        events: mpsc::UnboundedSender<Result<pb::invoke_action::Event, Status>>,
    ) -> Vec<pb::Diagnostic> {
        let name = request.action_type.clone();
        let outcome = self
            .run(Operation::Invoke, "invoke", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.action(&request.action_type, diags)?;
                    let config = Raw::from_message(request.config, "the configuration", diags)?;
                    let send = move |line| {
                        // Fails only when the caller is gone.
                        let _ = events.send(Ok(wire::progress(line)));
                    };
                    let progress = Progress::new(send, call().stop);
                    entry.action.invoke(diags, &config, &progress).await
                })
            })
            .await;
        wire::diagnostics(outcome.diags)
    }
}

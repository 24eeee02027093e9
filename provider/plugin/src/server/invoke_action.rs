//! InvokeAction: runs an action, and streams its progress and its result.

use futures::stream::StreamExt as _;
use grit_proto::tfplugin6 as pb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::{Events, Service, erased::Raw};
use crate::{server::call::Operation, wire};

impl Service {
    pub(super) fn invoke(&self, request: pb::invoke_action::Request) -> Events {
        self.0.walks.saw_apply();
        let (events, stream) = mpsc::unbounded_channel();
        let service = self.clone();
        // Separate from the stream: the work continues, with its stop token cancelled, when the caller drops the stream.
        tokio::spawn(async move {
            tokio::select! {
                biased;
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
        let found = self.0.registry.actions.find(&request.action_type);
        // Fails only when the caller is gone.
        let call =
            self.call(Operation::Invoke).reporting(move |line| _ = events.send(Ok(wire::progress(line))));
        let work = async move {
            let (action, config) = (found?, Raw::from_message(request.config, "the configuration")?);
            // Values that were unknown in the plan are checked here: Terraform neither validates nor plans the action again in the apply.
            action.check(&config).await?;
            action.run(&config).await
        };
        self.run_call(call, "invoke", &request.action_type, work).await.diagnostics
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use async_trait::async_trait;
    use pb::invoke_action::event::Type;
    use tokio::sync::Notify;

    use super::*;
    use crate::{
        Problem,
        contract::Block,
        problem::Problems,
        schema::{Schema, schema},
        server::{
            call::call,
            tests::{Nothing, registry},
        },
    };

    /// Waits until it is stopped, or panics. Notifies of the stop.
    struct Waiting {
        panics: bool,
        stopped: Arc<Notify>,
    }

    #[async_trait]
    impl Block for Waiting {
        type Config = Nothing;
        type Output = ();

        fn schema(&self) -> Schema {
            schema(0, "For tests.", [])
        }

        async fn run(&self, _: Nothing) -> Result<(), Problems> {
            let call = call();
            call.progress.report("waiting\u{1b}[2J".to_owned());
            assert!(!self.panics, "a test");
            call.stop.cancelled().await;
            call.progress.report("stopped".to_owned());
            self.stopped.notify_one();
            Err(Problem::bug("a test").into())
        }
    }

    fn start(panics: bool) -> (Service, Events, Arc<Notify>) {
        let stopped = Arc::new(Notify::new());
        let waiting = Waiting { panics, stopped: Arc::clone(&stopped) };
        let service = Service::new(registry().action("grit_waiting", waiting));
        let events = service.invoke(request("grit_waiting"));
        (service, events, stopped)
    }

    fn request(action_type: &str) -> pb::invoke_action::Request {
        let config = Some(pb::DynamicValue { msgpack: vec![0x80], json: Vec::new() });
        pb::invoke_action::Request { action_type: action_type.to_owned(), config, ..Default::default() }
    }

    async fn next(events: &mut Events) -> Option<Type> {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("an event");
        event.map(|event| event.unwrap().r#type.unwrap())
    }

    fn summary(event: Option<Type>) -> String {
        match event {
            Some(Type::Completed(completed)) => completed.diagnostics[0].summary.clone(),
            other => panic!("not the result: {other:?}"),
        }
    }

    #[tokio::test]
    async fn stop_ends_progress_and_returns_result() {
        let (service, mut events, _stopped) = start(false);
        let Some(Type::Progress(line)) = next(&mut events).await else { panic!("no progress") };
        assert_eq!(line.message, "waiting\\u{1b}[2J");
        service.stop();
        assert_eq!(summary(next(&mut events).await), "Provider bug");
        assert_eq!(next(&mut events).await, None);
    }

    #[tokio::test]
    async fn dropped_stream_stops_the_action() {
        let (_service, mut events, stopped) = start(false);
        next(&mut events).await;
        drop(events);
        tokio::time::timeout(Duration::from_secs(20), stopped.notified()).await.expect("the stop");
    }

    #[tokio::test]
    async fn panic_and_unknown_action_are_diagnostics() {
        let (service, mut events, _stopped) = start(true);
        next(&mut events).await;
        assert_eq!(summary(next(&mut events).await), "Provider bug");
        let mut unknown = service.invoke(request("grit_nothing"));
        assert_eq!(summary(next(&mut unknown).await), "Unknown type");
    }
}

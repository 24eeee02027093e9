//! The service `grit.wrapper.v1.Wrapper`.

use futures::stream;
use grit_proto::wrapper_v1::{
    self as v1, CancelRequest, CancelResponse, DrainRequest, DrainResponse, GetStatusRequest,
    ListJobsRequest, ListJobsResponse, StartRequest, StartResponse, WatchRequest, wrapper_server::Wrapper,
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::calls::Api;
use crate::supervise::Answer;

#[tonic::async_trait]
impl Wrapper for Api {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        Ok(Response::new(self.control.status()))
    }

    /// The current status, and each later one. The stream ends with the client, or with the supervisor.
    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<BoxStream<v1::Status>>, Status> {
        let watched = (self.control.changes(), None::<v1::Status>);
        Ok(Response::new(Box::pin(stream::unfold(watched, |(mut changes, sent)| async move {
            loop {
                if sent.is_some() {
                    changes.next().await?;
                }
                let status = changes.status();
                // A change can concern nothing that the status shows.
                if sent.as_ref() != Some(&status) {
                    return Some((Ok(status.clone()), (changes, Some(status))));
                }
            }
        }))))
    }

    /// Starts a drain, and returns when it is in progress.
    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        let (request, requester) = self.change(request)?;
        Ok(Response::new(self.control.drain(request, requester).await?))
    }

    /// Cancels a drain before its signal was sent.
    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let (request, requester) = self.change(request)?;
        self.control.cancel(&request.id, requester).await?;
        Ok(Response::new(CancelResponse { status: Some(self.control.status()) }))
    }

    async fn start(&self, request: Request<StartRequest>) -> Result<Response<StartResponse>, Status> {
        let (StartRequest {}, requester) = self.change(request)?;
        let already = self.control.start(requester).await? == Answer::Already;
        Ok(Response::new(StartResponse { status: Some(self.control.status()), already }))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        Ok(Response::new(self.control.jobs().await?))
    }
}

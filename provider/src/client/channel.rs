//! gRPC over one byte stream, with one HTTP/2 connection.
//!
//! tonic's channel reconnects and has a queue with a task, and hyper has two more tasks. A tunnel is opened once and has few calls, so one
//! task drives the connection.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::future::BoxFuture;
use grit_ssh::BoxStream;
use h2::{
    RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::io::BufWriter;
use tonic::{
    Status,
    body::Body as Message,
    codegen::{Bytes, Service, http},
};

/// Collects the preface and the settings, and each call, in one SSH packet.
const WRITE_BUFFER: usize = 1 << 10;
/// The limit for the headers, or the trailers, of a response.
const MAX_HEADER_LIST: u32 = 16 << 10;

/// A connection to a gRPC server. It is closed with the last clone and the last call.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    requests: SendRequest<Bytes>,
}

impl Channel {
    /// Starts HTTP/2. Errors of the stream are reported by the calls.
    pub(super) async fn over(stream: BoxStream) -> Result<Self, h2::Error> {
        let stream = BufWriter::with_capacity(WRITE_BUFFER, stream);
        let (requests, connection) = h2::client::Builder::new()
            .enable_push(false)
            .max_header_list_size(MAX_HEADER_LIST)
            .handshake(stream)
            .await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %error, "HTTP/2 connection failed");
            }
        });
        Ok(Self { requests })
    }
}

impl Service<http::Request<Message>> for Channel {
    type Response = http::Response<Answer>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Self::Response, Status>>;

    /// Always ready: [`Self::call`] waits.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    /// One call. The request is collected before it is sent, so it must be finite.
    fn call(&mut self, request: http::Request<Message>) -> Self::Future {
        let requests = self.requests.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let message = body.collect().await?.to_bytes();
            let mut requests = requests.ready().await?;
            let (response, request) = requests.send_request(http::Request::from_parts(head, ()), false)?;
            exchange(request, message, response).await
        })
    }
}

/// Sends the message, and waits for the response.
///
/// A server may respond and close the stream before it has read the message (RFC 9113, section 8.1), for example if it does not support the
/// method. The message then cannot be sent, which is not an error.
async fn exchange(
    mut request: SendStream<Bytes>,
    message: Bytes,
    response: ResponseFuture,
) -> Result<http::Response<Answer>, Status> {
    let sent = request.send_data(message, true);
    match (response.await, sent) {
        (Ok(response), _) => Ok(response.map(Answer)),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error.into()),
    }
}

/// The response: messages, and the trailers with the status of the call.
pub(super) struct Answer(RecvStream);

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = ready!(self.0.poll_data(cx)) {
            let data = data?;
            // The data is consumed immediately.
            self.0.flow_control().release_capacity(data.len())?;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(self.0.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::{
        io::{AsyncRead, AsyncWrite, ReadBuf},
        sync::mpsc,
    };

    use super::*;

    /// Reports each write, and never responds.
    struct WriteLog(mpsc::UnboundedSender<Vec<u8>>);

    impl AsyncRead for WriteLog {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for WriteLog {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.send(bytes.to_vec()).unwrap();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// On a busy machine, the response to the headers can arrive before the message is sent.
    #[tokio::test]
    async fn response_before_request_body_is_returned() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(async move {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            let answer = http::Response::builder().header("grpc-status", "12").body(()).unwrap();
            respond.send_response(answer, true).unwrap();
            // The message is not read: h2 closes the stream, as under tonic's server.
            drop((request, respond));
            while connection.accept().await.is_some() {}
        });
        let channel = Channel::over(Box::new(ours)).await.unwrap();
        let mut requests = channel.requests.clone().ready().await.unwrap();
        let head =
            http::Request::post("http://localhost/grit.wrapper.v1.Wrapper/GetStatus").body(()).unwrap();
        let (response, mut request) = requests.send_request(head, false).unwrap();
        // Until the server has closed the stream.
        std::future::poll_fn(|cx| request.poll_reset(cx)).await.unwrap();
        let answer = exchange(request, Bytes::from_static(&[0; 5]), response).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "12");
        drop((answer, requests, channel));
        server.await.unwrap();
    }

    /// Each write would be an SSH packet.
    #[tokio::test]
    async fn preface_and_settings_share_one_write() {
        let (writes, mut written) = mpsc::unbounded_channel();
        let channel = Channel::over(Box::new(WriteLog(writes))).await.unwrap();
        let first = written.recv().await.unwrap();
        let settings = first.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        assert_eq!(settings.get(3), Some(&4), "{}", first.escape_ascii());
        let calling = async move {
            let mut client = crate::client::wrapper_client::upstream_client(channel);
            client.check_status(grit_proto::runner_wrapper::CheckStatusRequest {}).await
        };
        let asked = async {
            let call = written.recv().await.unwrap();
            // A message without fields: not compressed, no bytes.
            assert!(call.ends_with(&[0; 5]), "the whole call is in it: {}", call.escape_ascii());
        };
        tokio::select! {
            answer = calling => panic!("the server has not responded: {answer:?}"),
            () = asked => {}
        }
    }
}

//! gRPC over one byte stream.

use std::{future::ready, io};

use grit_ssh::BoxStream;
use hyper_util::rt::TokioIo;
use tokio::io::BufWriter;
use tonic::transport::{Channel, Endpoint, Error};
use tower::service_fn;

/// Collects the preface and the settings, and each call, in one SSH packet.
const WRITE_BUFFER: usize = 1 << 10;
/// The default of HTTP/2. That of the library is larger: 5 MiB of an untrusted host.
const WINDOW: u32 = (1 << 16) - 1;
/// The limit for the headers, or the trailers, of a response.
const MAX_HEADER_LIST: u32 = 16 << 10;

/// A channel over this stream. After the end of the stream, its calls fail: the caller opens another tunnel.
pub(super) async fn over(stream: BoxStream) -> Result<Channel, Error> {
    let mut stream = Some(TokioIo::new(BufWriter::with_capacity(WRITE_BUFFER, stream)));
    let take = move |_| ready(stream.take().ok_or_else(|| io::Error::other("the tunnel has ended")));
    // HTTP requires an origin, although the stream leads to one server only.
    let endpoint = Endpoint::from_static("http://localhost")
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_max_header_list_size(MAX_HEADER_LIST);
    endpoint.connect_with_connector(service_fn(take)).await
}

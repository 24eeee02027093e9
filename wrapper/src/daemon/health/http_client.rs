//! HTTP client for the runner's HTTP server.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use thiserror::Error;
use tokio::time::timeout;

/// Larger than a list of ten thousand jobs.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// The runner responds from memory, on this host.
const RESPONSE_LIMIT: Duration = Duration::from_secs(3);

/// The limits of a response that is read line by line. A runner with a thousand sections has 20 MB of metrics.
const MAX_STREAM: usize = 64 * 1024 * 1024;
const MAX_LINE: usize = 64 * 1024;
const STREAM_LIMIT: Duration = Duration::from_secs(30);

/// Why there is no response.
#[derive(Debug, Error)]
pub(super) enum GetError {
    #[error("invalid HTTP address")]
    Address,
    #[error("no response within {RESPONSE_LIMIT:?}")]
    Timeout,
    #[error("connection failed")]
    Connect,
    #[error("the response is incomplete or too large")]
    Body,
    #[error("the response is larger than {} MiB", MAX_STREAM >> 20)]
    TooLarge,
    #[error("a line of the response is longer than {} KiB", MAX_LINE >> 10)]
    LongLine,
    #[error("the response was not complete within {STREAM_LIMIT:?}")]
    Slow,
}

/// A client that keeps its connection open between requests.
#[derive(Clone, Debug)]
pub(super) struct Http(Client<HttpConnector, Empty<Bytes>>);

impl Http {
    pub(super) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build_http())
    }

    pub(super) async fn get(&self, endpoint: &str, path: &str) -> Result<(StatusCode, String), GetError> {
        let request = request(endpoint, path)?;
        let answer = async {
            let answer = self.0.request(request).await.map_err(|_| GetError::Connect)?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), MAX_BODY).collect().await.map_err(|_| GetError::Body)?;
            Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        };
        timeout(RESPONSE_LIMIT, answer).await.map_err(|_| GetError::Timeout)?
    }

    /// Passes each line of a response to `line`, so that its size does not matter for memory, and other tasks run in between.
    pub(super) async fn lines(
        &self,
        endpoint: &str,
        path: &str,
        mut line: impl FnMut(&str),
    ) -> Result<StatusCode, GetError> {
        let answer = self.0.request(request(endpoint, path)?);
        let answer = timeout(RESPONSE_LIMIT, answer).await.map_err(|_| GetError::Timeout)?;
        let mut answer = answer.map_err(|_| GetError::Connect)?;
        let status = answer.status();
        let read = async {
            let (mut lines, mut size) = (Lines::default(), 0);
            loop {
                let frame = timeout(RESPONSE_LIMIT, answer.body_mut().frame()).await;
                let Some(frame) = frame.map_err(|_| GetError::Timeout)? else { break };
                let Ok(data) = frame.map_err(|_| GetError::Body)?.into_data() else { continue };
                size += data.len();
                if size > MAX_STREAM {
                    return Err(GetError::TooLarge);
                }
                lines.add(&data, &mut line)?;
            }
            lines.finish(&mut line);
            Ok(status)
        };
        timeout(STREAM_LIMIT, read).await.map_err(|_| GetError::Slow)?
    }
}

fn request(endpoint: &str, path: &str) -> Result<Request<Empty<Bytes>>, GetError> {
    let request = Request::get(format!("http://{endpoint}{path}"));
    request.body(Empty::new()).map_err(|_| GetError::Address)
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
struct Lines {
    /// The beginning of the current line.
    partial: Vec<u8>,
}

impl Lines {
    fn add(&mut self, mut data: &[u8], line: &mut impl FnMut(&str)) -> Result<(), GetError> {
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() {
                line(&String::from_utf8_lossy(&data[..end]));
            } else {
                self.partial.extend_from_slice(&data[..end]);
                self.finish(line);
            }
            data = &data[end + 1..];
        }
        if self.partial.len() + data.len() > MAX_LINE {
            return Err(GetError::LongLine);
        }
        self.partial.extend_from_slice(data);
        Ok(())
    }

    /// Passes the current line, even if it has no line break.
    fn finish(&mut self, line: &mut impl FnMut(&str)) {
        if !self.partial.is_empty() {
            line(&String::from_utf8_lossy(&self.partial));
            self.partial.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_at_any_chunk_size() {
        let text = "first\n\nthird \u{e9}\nlast";
        for size in 1..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            let mut each = |line: &str| found.push(line.to_owned());
            for chunk in text.as_bytes().chunks(size) {
                lines.add(chunk, &mut each).unwrap();
            }
            lines.finish(&mut each);
            found.retain(|line| !line.is_empty());
            assert_eq!(found, ["first", "third \u{e9}", "last"], "chunks of {size}");
        }
    }

    #[test]
    fn endless_line_is_refused() {
        let mut lines = Lines::default();
        let chunk = [b'x'; 4096];
        let added = (0..=MAX_LINE / chunk.len()).find_map(|_| lines.add(&chunk, &mut |_| ()).err());
        assert_eq!(added.unwrap().to_string(), "a line of the response is longer than 64 KiB");
    }
}

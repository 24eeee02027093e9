//! What every request handler needs: the server's settings and parts, the client's address, and the forms of the responses.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

use crate::daemon::{
    control::Control,
    counters::Counters,
    serve::{access::Access, listen::Address},
};

/// The settings of the HTTP server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub address: Address,
    /// Whether other hosts may read the metrics. If not, the address must be on loopback.
    pub remote: bool,
    /// The flag that sets `remote`.
    pub remote_allowed_by: &'static str,
    /// Whether clients may drain.
    pub control: bool,
}

/// Timeout for the head of a request, and for its body. Each fits one packet, so that idle connections cannot block others for long: two
/// hundred slow clients delay a request by 3.5 s.
pub(super) const RECEIVE_LIMIT: Duration = Duration::from_millis(500);

/// The address of the client, among the extensions of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) SocketAddr);

#[derive(Clone, Debug)]
pub struct HttpServer {
    pub control: Control,
    pub access: Access,
    pub settings: Arc<Settings>,
    pub counters: Arc<Counters>,
}

pub(super) type Json = ([(HeaderName, &'static str); 1], String);

pub(super) fn json(body: String) -> Json {
    ([(CONTENT_TYPE, "application/json")], body)
}

pub(super) fn error(status: StatusCode, why: &str) -> Response {
    (status, json(format!("{}\n", serde_json::json!({ "error": why })))).into_response()
}

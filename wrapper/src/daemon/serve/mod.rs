//! The servers: addresses, clients, gRPC and HTTP.

pub mod grpc;
pub mod http;
pub(crate) mod limits;
pub mod listen;
pub(crate) mod requester;

use grit_proto::wrapper_v1::Level;

/// The levels of a healthy runner, as clients name them.
const LEVELS: [(&str, Level); 4] = [
    ("process", Level::Process),
    ("ready", Level::Ready),
    ("polling", Level::Polling),
    ("working", Level::Working),
];

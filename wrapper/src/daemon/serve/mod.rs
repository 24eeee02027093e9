//! The servers: addresses, clients, gRPC and HTTP.

pub mod grpc;
pub mod http;
pub(crate) mod limits;
pub mod listen;
pub(crate) mod requester;

use grit_proto::wrapper_v1::Level;

/// The levels of a healthy runner. Clients use their short names.
const LEVELS: [Level; 4] = [Level::Process, Level::Ready, Level::Polling, Level::Working];

//! The servers: addresses, clients, gRPC and HTTP.

pub mod grpc;
pub mod http;
pub(crate) mod limits;
pub mod listen;
pub(crate) mod requester;

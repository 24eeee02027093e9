//! The servers: addresses, rights of the peers, gRPC and HTTP.

pub mod access;
pub mod grpc;
pub mod http;
pub(crate) mod limits;
pub mod listen;

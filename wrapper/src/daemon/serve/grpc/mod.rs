//! The gRPC server: the services of upstream's wrapper and `grit.wrapper.v1`, and gRPC health. One file per service.

mod calls;
mod connection;
mod errors;
mod places;
mod server;
mod upstream;
mod v1;

pub use self::{
    calls::Api,
    server::{ServeError, serve},
};
pub(crate) use self::{connection::Connection, server::serve_connections};

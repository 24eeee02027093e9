//! The gRPC surface: upstream's service, our own beside it, gRPC health and reflection. One file per call; [`messages`] turns states into the words
//! of each API, and [`errors`] makes every error.

mod accept;
mod authority;
mod authorization;
mod calls;
mod connection;
mod connection_limits;
mod detached;
mod errors;
mod messages;
mod reflection;
mod server;
mod upstream;
mod v1;

pub use self::{
    authorization::Authorizer,
    server::{ServeError, Services, serve},
    upstream::Upstream,
    v1::WrapperV1,
};

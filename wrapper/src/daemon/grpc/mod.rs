//! The gRPC server: upstream's service, the `grit.wrapper.v1` service, gRPC health and reflection. One file per method; [`messages`]
//! creates the messages, and [`errors`] creates all errors.

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

#[cfg(any(test, feature = "fuzzing"))]
pub use self::authority::fuzz;
pub use self::{
    authorization::Authorizer,
    server::{ServeError, Services, serve},
    upstream::Upstream,
    v1::WrapperV1,
};

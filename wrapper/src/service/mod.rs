//! The gRPC surface: upstream's service, our own beside it, gRPC health and reflection. One file per call; [`publish`] turns states into the words
//! of each API, and [`status`] makes every error.

mod asker;
mod authority;
mod counted;
mod detached;
mod guard;
mod incoming;
mod limited;
mod own;
mod places;
mod publish;
mod reflection;
mod seated;
mod server;
mod status;
mod upstream;

pub(crate) use self::asker::{Asker, Change, HttpPeer};
pub use self::{
    guard::Guard,
    own::Own,
    server::{ServeError, Services, serve},
    upstream::Upstream,
};

//! SSH sessions. Only this module uses russh.
//!
//! A [`Session`] runs over any byte stream (TCP, a channel of a jump host, a command). It performs handshake, host key check and
//! authentication, each with a time limit, and then opens channels. Errors contain what russh reports only to its handler: the reason of a
//! disconnect, and the text of a channel refusal.

mod agent;
mod algorithms;
mod auth;
mod failure;
mod handler;
mod host_certificate;
mod keys;
mod renewal;
mod session;
mod signer;
mod user_certificate;

pub(crate) use agent::Agent;
pub(crate) use auth::Credential;
pub(crate) use failure::says_unknown_name;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use keys::{KdfLimits, load_within as load_key_within};
pub(crate) use keys::{PrivateKey, load_certificate, read_certificate};
pub(crate) use keys::{inspect as inspect_key, load as load_key};
pub(crate) use session::{Session, SessionKey, SessionSpec, Via};

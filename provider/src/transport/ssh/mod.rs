//! SSH itself: the only place that names russh.
//!
//! A [`Session`] is made over any byte stream (TCP, a channel of a bastion, a command), goes through handshake, host key check and
//! authentication, each with its limit, and then opens channels, each of them a byte stream again. What russh reports only to its
//! handler (the reason of a disconnect, the text of a channel refusal) is kept and ends up in the errors.

mod agent;
mod algorithms;
mod auth;
mod failure;
mod handler;
mod host_certificate;
mod keys;
mod session;

pub(crate) use agent::Agent;
pub(crate) use auth::Credential;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use keys::{KdfLimits, load_within as load_key_within};
pub(crate) use keys::{PrivateKey, load_certificate, read_certificate};
pub(crate) use keys::{inspect as inspect_key, load as load_key};
pub(crate) use session::{Session, SessionKey, SessionSpec, Via};

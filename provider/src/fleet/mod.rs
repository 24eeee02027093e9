//! One operation over one or many runner managers: wait until healthy, drain.
//!
//! Here stand the loops that decide when to call again and when to give up. They know a wrapper as the trait
//! [`Wrapper`](crate::client::Wrapper) and return values; `explain` finds the words for them.
//!
//! Every wait ends at its deadline, at the stop token, or with an outcome. Nothing here takes back a shutdown that was requested: the runner
//! goes on draining when the caller goes away, and the next call finds it draining.

pub mod drain;
mod for_each;
pub(crate) mod health;
mod peers;
mod retry;
mod wait;

#[cfg(test)]
mod test_wrapper;

pub(crate) use for_each::{Outcomes, for_each};
pub use peers::WithoutPeers;
pub(crate) use peers::{Drains, Peer, PeerProblem, TooFewPeers, WithPeers};
pub use retry::Retry;

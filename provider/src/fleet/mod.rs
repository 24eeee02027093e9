//! Operations on runner managers: wait until healthy, and drain.
//!
//! The loops decide when to retry and when to fail. They use the trait [`Wrapper`](crate::client::Wrapper), and return values that
//! `explain` turns into texts.
//!
//! Each wait ends at its deadline, at the stop token, or with an outcome. A requested shutdown is never cancelled: the runner keeps
//! draining, and the next call joins the drain.

pub(crate) mod absence;
pub mod drain;
pub(crate) mod draining;
mod failure;
pub(crate) mod health;
mod over;
pub(crate) mod receipt;
mod retry;
mod wait;

#[cfg(test)]
mod test_wrapper;

pub(crate) use failure::{Failure, Reason, Requested};
pub(crate) use over::{Managers, Outcomes, Unread, for_each, over, read_all};
pub use retry::Retry;

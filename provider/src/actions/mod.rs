//! The actions, one file each, named as in the registry: `terraform apply -invoke=action.grit_drain.NAME` (Terraform 1.14).
//!
//! An action is for people: it runs when they invoke it, and shows progress. It is not a part of the order of a rollout, which only the
//! resources keep.

mod drain;

pub use drain::Drain;

//! What both programs share: the wire contracts, which are Terraform's plugin protocol, go-plugin's services and the wrapper's API, and the text form of
//! durations.
//!
//! The `.proto` files beside `src/` are the source. What they generate is committed under `src/gen/`, so that a build needs no
//! protoc; `cargo xtask gen` makes it again, and the test `generated` fails when the two differ.

/// Terraform's plugin protocol 6.11: Terraform calls, the provider answers.
#[allow(clippy::all, clippy::allow_attributes_without_reason, unreachable_pub, unused_qualifications, reason = "generated")]
#[rustfmt::skip]
#[path = "gen/tfplugin6.rs"]
pub mod tfplugin6;

/// go-plugin's services around a plugin process.
#[allow(clippy::all, clippy::allow_attributes_without_reason, unreachable_pub, unused_qualifications, reason = "generated")]
#[rustfmt::skip]
#[path = "gen/plugin.rs"]
pub mod goplugin;

/// The API of upstream's `gitlab-runner wrapper`, spoken by both of our programs.
#[allow(clippy::all, clippy::allow_attributes_without_reason, unreachable_pub, unused_qualifications, reason = "generated")]
#[rustfmt::skip]
#[path = "gen/gitlab_com.gitlab_runner.runner_wrapper.rs"]
pub mod runner_wrapper;

/// The wrapper's own API.
#[allow(clippy::all, clippy::allow_attributes_without_reason, unreachable_pub, unused_qualifications, reason = "generated")]
#[rustfmt::skip]
#[path = "gen/grit.wrapper.v1.rs"]
pub mod wrapper_v1;

pub mod duration;
pub mod json;

/// The id of a drain that a signal to the wrapper requested, and no client.
pub const SIGNAL_DRAIN: &str = "signal";

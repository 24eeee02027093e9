//! The data sources, one file each, named as in the registry.

mod deployment;
mod runner_status;

pub use deployment::Deployment;
pub use runner_status::RunnerStatus;

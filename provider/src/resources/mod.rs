//! The managed resources.

mod early_drain;
pub(crate) mod report;
mod runner_drain;
mod runner_health;
mod runner_shutdown;

pub use runner_drain::RunnerDrain;
pub use runner_health::RunnerHealth;
pub use runner_shutdown::RunnerShutdown;

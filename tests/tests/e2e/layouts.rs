//! The statements of docs/guides/rollout.md about order: shapes that keep it, shapes that look right and do not, and ways past a drain.

mod configuration;
mod correct;
mod drained_too_early;
mod not_drained;
mod open_tofu;
mod provider_blocks;

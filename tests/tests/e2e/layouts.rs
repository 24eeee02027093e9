//! The statements of docs/guides/rollout.md and docs/guides/layouts-that-fail.md about order: correct layouts, layouts that drain too early, and layouts
//! without a drain.

mod configuration;
mod correct;
mod drained_too_early;
mod not_drained;
mod open_tofu;
mod provider_blocks;
mod unsafe_settings;

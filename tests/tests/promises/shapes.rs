//! The statements of docs/guides/rollout.md about order: shapes that keep it, shapes that look right and do not, and ways past a drain.

mod blocks;
mod drained_too_early;
mod not_drained;
mod open_tofu;
mod other_right_shapes;
mod provider_blocks;

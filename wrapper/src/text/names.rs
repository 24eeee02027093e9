//! The names of the API's enum values, as the log and all outputs show them.

/// The name without the prefix of its enum: `jobs_aborted` for `DRAIN_OUTCOME_JOBS_ABORTED`.
pub(crate) fn short(name: &str) -> String {
    let prefixes = ["DRAIN_OUTCOME_", "LEVEL_", "MODE_", "STATE_"];
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name).to_ascii_lowercase()
}

//! Durations as texts.

use std::time::Duration;

pub(crate) use grit_proto::duration::parse;

/// The accepted format, for error messages.
pub(crate) const ACCEPTED: &str =
    "one or more numbers with a unit (ms, s, m, h, d), such as \"90s\", \"1h30m\" or \"2d\"";

/// Formats a duration with its two largest units, `2h10m`, `45s`; with tenths below ten seconds, `1.5s`.
pub(crate) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 if duration.subsec_millis() >= 50 => format!("{:.1}s", duration.as_secs_f64()),
        0..60 => format!("{seconds}s"),
        60..3600 => join(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => join(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => join(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

fn join(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_duration_uses_two_largest_units() {
        for (seconds, wanted) in [
            (1.5, "1.5s"),
            (5.0, "5s"),
            (45.0, "45s"),
            (60.0, "1m"),
            (130.0, "2m10s"),
            (7800.0, "2h10m"),
            (180_000.0, "2d2h"),
        ] {
            assert_eq!(human(Duration::from_secs_f64(seconds)), wanted);
        }
    }
}

//! Durations in Go's format, and days: `90s`, `1h30m`, `1.5h`, `2d`, `1d12h`.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DurationError {
    #[error("it is empty")]
    Empty,
    #[error("it must not be negative")]
    Negative,
    #[error("`{0}` is not a number with a unit")]
    NoUnit(String),
    #[error("`{0}` is not one of the units ms, s, m, h, d")]
    UnknownUnit(String),
    #[error("it is longer than ten years")]
    TooLong,
}

/// The accepted format, for error messages.
pub(crate) const ACCEPTED: &str =
    "one or more numbers with a unit (ms, s, m, h, d), such as \"90s\", \"1h30m\" or \"2d\"";

const MAX_SECONDS: f64 = 10.0 * 365.0 * 24.0 * 3600.0;

/// Parses a duration in Go's format, which Terraform uses for `timeouts`, and days of 24 hours. Signs and units below a millisecond are not
/// accepted.
///
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && parse(rest).is_ok()) {
        return Err(DurationError::Negative);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let number: f64 = match number.parse() {
            Ok(number) if !unit.is_empty() => number,
            _ => return Err(DurationError::NoUnit(rest.to_owned())),
        };
        seconds += number
            * match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return Err(DurationError::UnknownUnit(unit.to_owned())),
            };
        rest = tail;
    }
    if seconds > MAX_SECONDS {
        return Err(DurationError::TooLong);
    }
    Ok(Duration::from_secs_f64(seconds))
}

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
    fn go_duration_is_parsed() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1m0.5s", 60_500),
            ("72h", 259_200_000),
            ("2d", 172_800_000),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_duration_error_names_wrong_part() {
        for (text, wanted) in [
            ("", DurationError::Empty),
            ("10", DurationError::NoUnit("10".into())),
            ("-5s", DurationError::Negative),
            ("-", DurationError::NoUnit("-".into())),
            ("1h 30m", DurationError::UnknownUnit("h ".into())),
            ("5 minutes", DurationError::UnknownUnit(" minutes".into())),
            ("3w", DurationError::UnknownUnit("w".into())),
            ("1.2.3s", DurationError::NoUnit("1.2.3s".into())),
            ("s", DurationError::NoUnit("s".into())),
            ("999999999h", DurationError::TooLong),
        ] {
            assert_eq!(parse(text), Err(wanted), "{text}");
        }
    }

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

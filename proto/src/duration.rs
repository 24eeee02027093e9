//! The text form of durations in the settings and messages of both programs: Go's syntax, because Terraform's `timeouts` and the flags of upstream's
//! wrapper have it, and days of 24 hours: `90s`, `1h30m`, `1.5h`, `300ms`, `2d`, `0`.

use std::{fmt, time::Duration};

/// Ten years: longer ones would overflow clocks.
const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Why a text is not a valid duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurationError {
    Empty,
    Negative,
    NoUnit(String),
    UnknownUnit(String),
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Negative => f.write_str("it must not be negative"),
            Self::NoUnit(text) => write!(f, "`{text}` is not a number with a unit"),
            Self::UnknownUnit(unit) => write!(f, "`{unit}` is not one of the units ms, s, m, h, d"),
            Self::TooLong => f.write_str("it is longer than ten years"),
        }
    }
}

impl std::error::Error for DurationError {}

/// Parses a duration of 0 or more. A sign is not accepted.
///
/// # Errors
///
/// If the text is not a valid duration, or is one of more than ten years.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    match text {
        "" => return Err(DurationError::Empty),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    if text.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && parse(rest).is_ok()) {
        return Err(DurationError::Negative);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let number: f64 = match number.parse() {
            Ok(number) if !unit.is_empty() => number,
            _ => return Err(DurationError::NoUnit(rest.to_owned())),
        };
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(DurationError::UnknownUnit(unit.to_owned())),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| DurationError::TooLong)?;
        total = total.checked_add(part).filter(|total| *total <= MAX).ok_or(DurationError::TooLong)?;
        rest = tail;
    }
    Ok(total)
}

/// Formats a duration with its two largest units, `2h10m`, `45s`; with tenths below ten seconds, `1.5s`.
pub fn human(duration: Duration) -> String {
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

    #[test]
    fn durations_are_parsed() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("0s", 0),
            ("1500ns", 1_500),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("250ms", 250_000_000),
            ("1m0.5s", 60_500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1d12h", 129_600_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        assert_eq!(parse("3650d"), Ok(MAX));
    }

    #[test]
    fn error_names_the_wrong_part() {
        use DurationError::{Empty, Negative, NoUnit, TooLong, UnknownUnit};
        for (text, error) in [
            ("", Empty),
            ("10", NoUnit("10".into())),
            ("1h30", NoUnit("30".into())),
            ("-5s", Negative),
            ("-", NoUnit("-".into())),
            ("--5s", NoUnit("--5s".into())),
            ("+5s", NoUnit("+5s".into())),
            ("1h 30m", UnknownUnit("h ".into())),
            ("5 minutes", UnknownUnit(" minutes".into())),
            ("3w", UnknownUnit("w".into())),
            ("1.2.3s", NoUnit("1.2.3s".into())),
            ("s", NoUnit("s".into())),
            ("3651d", TooLong),
            ("9999999999999999999999999h", TooLong),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}

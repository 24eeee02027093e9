//! Durations in Go's syntax, because upstream's flags accept it, and days: `300ms`, `1.5h`, `2h45m`, `2d`, `0`.

use std::time::Duration;

/// Parses a duration of 0 or more.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 45s, 1h30m or 500ms".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && parse(rest).is_ok()) {
        return Err("must not be negative".to_owned());
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    // Longer durations would overflow the clock.
    if text.is_empty() || total > MAX { Err(wrong()) } else { Ok(total) }
}

/// Parses a duration above 0, for flags where 0 would abort jobs immediately although the user may mean "no limit".
pub(crate) fn parse_limit(text: &str) -> Result<Duration, String> {
    limit(parse(text)?).map_err(|why| format!("{why}; omit the flag for no limit"))
}

/// The same condition, for a duration in a request.
pub(crate) fn limit(duration: Duration) -> Result<Duration, &'static str> {
    if duration.is_zero() { Err("0 would abort the jobs immediately") } else { Ok(duration) }
}

const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Formats a duration: `4h`, `1m30s`, `100ms`.
pub(crate) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 3600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (duration.subsec_millis().into(), "ms"),
    ];
    let text: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("300ms", 300),
            ("1.5h", 5_400_000),
            ("2h45m", 9_900_000),
            ("1h0m0s", 3_600_000),
            (".5s", 500),
            ("2d", 172_800_000),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "+1s",
            "1w",
            "1 s",
            "1s ",
            "1..5s",
            ".s",
            "9999999999h",
            "1e3s",
            "NaNs",
            "infs",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn displayed_duration_can_be_parsed() {
        for (millis, text) in [
            (0, "0s"),
            (100, "100ms"),
            (14_400_000, "4h"),
            (90_000, "1m30s"),
            (3_661_001, "1h1m1s1ms"),
            (90_061_000, "25h1m1s"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
    }
}

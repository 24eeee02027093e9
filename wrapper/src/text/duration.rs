//! Durations in flags and requests.

use std::time::Duration;

use grit_proto::duration::DurationError;

/// Parses a duration of 0 or more.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    grit_proto::duration::parse(text).map_err(|error| match error {
        DurationError::Negative => "must not be negative".to_owned(),
        _ => "expected a duration such as 45s, 1h30m or 500ms".to_owned(),
    })
}

/// Parses a duration above 0, for flags where 0 would abort jobs immediately although the user may mean "no limit".
pub(crate) fn parse_limit(text: &str) -> Result<Duration, String> {
    limit(parse(text)?).map_err(|why| format!("{why}; omit the flag for no limit"))
}

/// The same condition, for a duration in a request.
pub(crate) fn limit(duration: Duration) -> Result<Duration, &'static str> {
    if duration.is_zero() { Err("0 would abort the jobs immediately") } else { Ok(duration) }
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
}

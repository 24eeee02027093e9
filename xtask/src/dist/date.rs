//! Dates of the calendar in UTC.

/// A time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
    /// Days since a Thursday.
    days: u64,
}

impl Date {
    /// From seconds since 1970.
    pub(super) fn new(epoch: u64) -> Date {
        let days = epoch / 86_400;
        let (mut year, mut left) = (1970, days);
        while left >= days_of_year(year) {
            left -= days_of_year(year);
            year += 1;
        }
        let mut month = 1;
        while left >= days_of_month(year, month) {
            left -= days_of_month(year, month);
            month += 1;
        }
        let time = epoch % 86_400;
        Date {
            year,
            month,
            day: left + 1,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
            days,
        }
    }

    /// `2023-11-14T22:13:20Z`.
    pub(super) fn iso(self) -> String {
        let Date { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// `Tue, 14 Nov 2023 22:13:20 +0000`.
    pub(super) fn email(self) -> String {
        let Date { year, day, hour, minute, second, .. } = self;
        let (weekday, month) = (self.weekday(), self.month_name());
        format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} +0000")
    }

    fn weekday(self) -> &'static str {
        name(&["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"], self.days % 7)
    }

    fn month_name(self) -> &'static str {
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        name(&months, self.month - 1)
    }
}

fn name(names: &[&'static str], at: u64) -> &'static str {
    usize::try_from(at).ok().and_then(|at| names.get(at)).copied().unwrap_or_default()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_gnu_date() {
        for (epoch, iso, email) in [
            (0, "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 +0000"),
            (1_700_000_000, "2023-11-14T22:13:20Z", "Tue, 14 Nov 2023 22:13:20 +0000"),
            (1_709_251_199, "2024-02-29T23:59:59Z", "Thu, 29 Feb 2024 23:59:59 +0000"),
            (4_107_542_400, "2100-03-01T00:00:00Z", "Mon, 01 Mar 2100 00:00:00 +0000"),
        ] {
            assert_eq!((Date::new(epoch).iso().as_str(), Date::new(epoch).email().as_str()), (iso, email));
        }
    }
}

//! Times of files and documents, in UTC.

use anyhow::Context as _;
use time::{
    OffsetDateTime,
    format_description::well_known::{Rfc2822, Rfc3339},
};

/// From seconds since 1970.
pub(super) fn utc(epoch: u64) -> anyhow::Result<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(epoch.try_into()?).with_context(|| format!("the time {epoch}"))
}

/// `2023-11-14T22:13:20Z`.
pub(super) fn iso(epoch: u64) -> anyhow::Result<String> {
    Ok(utc(epoch)?.format(&Rfc3339)?)
}

/// `Tue, 14 Nov 2023 22:13:20 +0000`.
pub(super) fn email(epoch: u64) -> anyhow::Result<String> {
    Ok(utc(epoch)?.format(&Rfc2822)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_gnu_date() {
        for (epoch, shown_iso, shown_email) in [
            (0, "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 +0000"),
            (1_700_000_000, "2023-11-14T22:13:20Z", "Tue, 14 Nov 2023 22:13:20 +0000"),
            (1_709_251_199, "2024-02-29T23:59:59Z", "Thu, 29 Feb 2024 23:59:59 +0000"),
            (4_107_542_400, "2100-03-01T00:00:00Z", "Mon, 01 Mar 2100 00:00:00 +0000"),
        ] {
            let (iso, email) = (iso(epoch).unwrap(), email(epoch).unwrap());
            assert_eq!((iso.as_str(), email.as_str()), (shown_iso, shown_email));
        }
    }
}

//! The part of a section's token that GitLab Runner shows in metrics and logs.

/// The number of characters of the current rule.
const LENGTH: usize = 9;

/// A shortened token. The rule changed with GitLab Runner 18.2, and metrics do not say which one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortToken {
    /// Since GitLab Runner 18.2.
    pub current: String,
    /// Before that.
    pub earlier: String,
}

impl ShortToken {
    pub(super) fn of(token: &str) -> Self {
        Self { current: current(token), earlier: earlier(token) }
    }

    /// The texts that can be the label of its section.
    pub(super) fn labels(&self) -> [&str; 2] {
        [&self.current, &self.earlier]
    }
}

/// Nine characters after the prefixes of `helpers/shorten_token.go`: the kind of token, and the partition of GitLab (`t1_` to `t3_`).
fn current(token: &str) -> String {
    let token = match token.strip_prefix("glrt-") {
        Some(rest) => without_partition(rest).unwrap_or(rest),
        None => without_partition(token).or_else(|| token.strip_prefix("glrtr-")).unwrap_or(token),
    };
    let token = token.strip_prefix("glcbt-").unwrap_or(token);
    let token = without_rotation_date(token).unwrap_or(token);
    token.chars().take(LENGTH).collect()
}

fn without_partition(token: &str) -> Option<&str> {
    ["t1_", "t2_", "t3_"].iter().find_map(|partition| token.strip_prefix(partition))
}

/// `GR` and seven hexadecimal digits: a registration token of earlier releases of GitLab.
fn without_rotation_date(token: &str) -> Option<&str> {
    let (date, rest) = token.strip_prefix("GR")?.split_at_checked(7)?;
    date.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(rest)
}

fn earlier(token: &str) -> String {
    let kinds = ["glrt-", "glrtr-", "glcbt-"];
    let (rest, length) = match kinds.iter().find_map(|kind| token.strip_prefix(kind)) {
        Some(rest) => (rest, LENGTH),
        None if token.len() >= 17 && without_rotation_date(token).is_some() => (token, 17),
        None => (token, 8),
    };
    rest.chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_shortened_as_by_runner() {
        for (token, current, earlier) in [
            ("short", "short", "short"),
            ("abcdefghijklmnop", "abcdefghi", "abcdefgh"),
            ("glrt-x9Abcd-EFGhijK", "x9Abcd-EF", "x9Abcd-EF"),
            ("glrt-t1_x9Abcd-EFGhijK", "x9Abcd-EF", "t1_x9Abcd"),
            ("glrt-t3_x9Abcd-EFGhijK", "x9Abcd-EF", "t3_x9Abcd"),
            ("glrt-t4_x9Abcd-EFGhijK", "t4_x9Abcd", "t4_x9Abcd"),
            ("t2_x9Abcd-EFGhijK", "x9Abcd-EF", "t2_x9Abc"),
            ("glrtr-x9Abcd-EFGhijK", "x9Abcd-EF", "x9Abcd-EF"),
            ("glrtr-t1_x9Abcd-EFGhijK", "t1_x9Abcd", "t1_x9Abcd"),
            ("glcbt-x9Abcd-EFGhijK", "x9Abcd-EF", "x9Abcd-EF"),
            ("glcbt-t2_x9Abcd-EFGhijK", "t2_x9Abcd", "t2_x9Abcd"),
            ("GR13489ab-tokenOfEarlier", "-tokenOfE", "GR13489ab-tokenOf"),
            ("GR13489a-tokenOfOthers", "GR13489a-", "GR13489a"),
            ("", "", ""),
        ] {
            let short = ShortToken::of(token);
            assert_eq!((short.current.as_str(), short.earlier.as_str()), (current, earlier), "{token}");
        }
    }
}

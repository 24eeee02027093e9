//! The part of a section's token that GitLab Runner shows in metrics and logs.

/// The number of characters of the current rule.
const LENGTH: usize = 9;

/// The labels that a section can have. The rule depends on the version of GitLab Runner, which metrics do not have at first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortToken {
    /// From the newest rule to the oldest one.
    labels: Vec<String>,
}

impl ShortToken {
    /// The maximum number of labels.
    pub(super) const RULES: usize = 6;

    /// `token` is the text of the configuration file. Since 18.10, GitLab Runner expands variables of its environment in it: `env` reads one.
    pub(super) fn of(token: &str, env: impl Fn(&str) -> Option<String>) -> Self {
        let expanded = expand(token, env);
        let literal = (expanded != token).then_some(token);
        let labels = [expanded.as_str()].into_iter().chain(literal).flat_map(|token| {
            // Since 18.2, before that, and before 17.11.2 (`glrtr-`) and 17.9 (`glcbt-`).
            [current(token), earlier(token), token.chars().take(8).collect()]
        });
        Self { labels: labels.collect() }
    }

    /// The text that a current GitLab Runner shows.
    pub fn name(&self) -> &str {
        self.labels.first().map(String::as_str).unwrap_or_default()
    }

    /// The label by one of the rules, from 0, the newest.
    pub(super) fn label(&self, rule: usize) -> Option<&str> {
        self.labels.get(rule).map(String::as_str)
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(String::as_str)
    }
}

/// Expands `$NAME` and `${NAME}` by the rules of Go's `os.ExpandEnv`. A variable that is not set is empty.
fn expand(text: &str, env: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let is_special = |c: char| "*#$@!?-0123456789".contains(c);
        let (name, tail) = if let Some(braced) = after.strip_prefix('{') {
            // Without an end, only the two characters are dropped.
            braced.split_once('}').unwrap_or(("", braced))
        } else if after.starts_with(is_special) {
            after.split_at(1)
        } else {
            let end = after.find(|c: char| !(c == '_' || c.is_ascii_alphanumeric())).unwrap_or(after.len());
            after.split_at(end)
        };
        if name.is_empty() && !after.starts_with('{') {
            expanded.push('$');
        }
        expanded.push_str(&env(name).filter(|_| !name.is_empty()).unwrap_or_default());
        rest = tail;
    }
    expanded + rest
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
        for (token, current, earlier, earliest) in [
            ("short", "short", "short", "short"),
            ("abcdefghijklmnop", "abcdefghi", "abcdefgh", "abcdefgh"),
            ("glrt-x9Abcd-EFGhijK", "x9Abcd-EF", "x9Abcd-EF", "glrt-x9A"),
            ("glrt-t1_x9Abcd-EFGhijK", "x9Abcd-EF", "t1_x9Abcd", "glrt-t1_"),
            ("glrt-t3_x9Abcd-EFGhijK", "x9Abcd-EF", "t3_x9Abcd", "glrt-t3_"),
            ("glrt-t4_x9Abcd-EFGhijK", "t4_x9Abcd", "t4_x9Abcd", "glrt-t4_"),
            ("t2_x9Abcd-EFGhijK", "x9Abcd-EF", "t2_x9Abc", "t2_x9Abc"),
            ("glrtr-x9Abcd-EFGhijK", "x9Abcd-EF", "x9Abcd-EF", "glrtr-x9"),
            ("glrtr-t1_x9Abcd-EFGhijK", "t1_x9Abcd", "t1_x9Abcd", "glrtr-t1"),
            ("glcbt-x9Abcd-EFGhijK", "x9Abcd-EF", "x9Abcd-EF", "glcbt-x9"),
            ("glcbt-t2_x9Abcd-EFGhijK", "t2_x9Abcd", "t2_x9Abcd", "glcbt-t2"),
            ("GR13489ab-tokenOfEarlier", "-tokenOfE", "GR13489ab-tokenOf", "GR13489a"),
            ("GR13489a-tokenOfOthers", "GR13489a-", "GR13489a", "GR13489a"),
            ("", "", "", ""),
        ] {
            let short = ShortToken::of(token, |_| None);
            assert_eq!(short.labels().collect::<Vec<_>>(), [current, earlier, earliest], "{token}");
            assert_eq!(short.name(), current);
        }
    }

    #[test]
    fn token_of_environment_has_labels_of_both_texts() {
        let env = |name: &str| (name == "RUNNER_TOKEN").then(|| "glrt-t3_x9Abcd-EFGhijK".to_owned());
        for token in ["${RUNNER_TOKEN}", "$RUNNER_TOKEN"] {
            let short = ShortToken::of(token, env);
            assert_eq!(short.name(), "x9Abcd-EF");
            let literal = token.chars().take(9).collect::<String>();
            assert_eq!(short.label(3), Some(literal.as_str()), "before 18.10");
            assert_eq!(short.labels().count(), ShortToken::RULES);
        }
    }

    /// Each result is that of Go 1.26.
    #[test]
    fn variables_are_expanded_as_by_go() {
        let env = |name: &str| match name {
            "A" => Some("one".to_owned()),
            "A_2" => Some("two".to_owned()),
            "1" => Some("never set".to_owned()),
            _ => None,
        };
        for (text, expanded) in [
            ("", ""),
            ("glrt-plain", "glrt-plain"),
            ("$A", "one"),
            ("x${A}y$A_2.z", "xoneytwo.z"),
            ("$UNSET-$A", "-one"),
            ("100$", "100$"),
            ("a$.b", "a$.b"),
            ("${}x", "x"),
            ("${A", "A"),
            ("$$A", "A"),
            ("$é", "$é"),
        ] {
            assert_eq!(expand(text, env), expanded, "{text}");
        }
    }
}

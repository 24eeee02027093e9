//! Host patterns: `*` and `?`, lists with commas, and `!` for exclusion.

/// Whether one of the patterns matches, as for the principals of a host certificate. Ignores case.
pub(crate) fn matches_any<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    let name = name.to_lowercase();
    patterns.into_iter().any(|pattern| matches(pattern.to_lowercase().as_bytes(), name.as_bytes()))
}

/// Whether a pattern of the list matches, and none with `!` does. Ignores case.
pub(super) fn list_matches(list: &str, name: &str) -> bool {
    let (list, name) = (list.to_lowercase(), name.to_lowercase());
    let mut found = false;
    for pattern in list.split(',') {
        match pattern.strip_prefix('!') {
            Some(excluded) if matches(excluded.as_bytes(), name.as_bytes()) => return false,
            Some(_) => {}
            None => found |= matches(pattern.as_bytes(), name.as_bytes()),
        }
    }
    found
}

/// `*` matches any number of characters, `?` exactly one. The time is never exponential.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to resume after the last `*` when it has to match one more character.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if name.get(n) == Some(byte) => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    (p, n) = (after, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_pattern_lists_match_like_openssh() {
        for (list, name, expected) in [
            ("h", "h", true),
            ("h", "hh", false),
            ("H.Example.com", "h.example.COM", true),
            ("*", "anything", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("mgr-?", "mgr-1", true),
            ("mgr-?", "mgr-12", false),
            ("a,b,c", "b", true),
            ("*.example.com,!bad.example.com", "bad.example.com", false),
            ("*.example.com,!bad.example.com", "good.example.com", true),
            ("!bad.example.com", "good.example.com", false),
            ("[*]:2222", "[h]:2222", true),
            ("**a*?", "xaay", true),
            ("", "", true),
            ("", "h", false),
        ] {
            assert_eq!(list_matches(list, name), expected, "{list:?} {name:?}");
        }
    }

    #[test]
    fn pathological_host_pattern_is_fast() {
        assert!(!matches(&b"*a".repeat(200), &b"a".repeat(199)));
        assert!(!matches(&[b"*a".repeat(50), b"b".to_vec()].concat(), &b"a".repeat(5_000)));
    }
}

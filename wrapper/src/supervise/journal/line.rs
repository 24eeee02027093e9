//! The last error in the log of a runner, made safe to show: a Terraform error and the status contain it.

/// Maximum number of characters.
const WIDTH: usize = 300;

/// Replacement of a secret.
const HIDDEN: &str = "[hidden]";

/// Minimum length of a GitLab token after its prefix.
const SHORTEST_TOKEN: usize = 16;

const PEM: &str = "-----BEGIN ";

/// The last line of the level FATAL, ERROR or PANIC, without tokens, PEM blocks and escape sequences, and shortened.
pub(super) fn last_error(lines: &[String]) -> Option<String> {
    let line = lines.iter().rev().map(|line| plain(line)).find(|line| is_error(line))?;
    let line = match line.split_once(PEM) {
        Some((before, _)) => format!("{before}{HIDDEN}"),
        None => line,
    };
    let line = line.split(' ').map(without_tokens).collect::<Vec<_>>().join(" ");
    Some(match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    })
}

/// In each format of GitLab Runner (`--log-format`: runner, text, json), and for a panic of Go.
fn is_error(line: &str) -> bool {
    ["fatal", "error", "panic"].iter().any(|level| {
        let is_begin = line.get(..level.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(level));
        (is_begin && line[level.len()..].starts_with(':'))
            || line.contains(&format!("level={level} "))
            || line.contains(&format!("\"level\":\"{level}\""))
    })
}

/// Removes colours (ECMA-48) and other control characters.
fn plain(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(|end| ('@'..='~').contains(&end)).map_or("", |(_, rest)| rest));
    }
    text.retain(|character| !character.is_control());
    text
}

/// Hides GitLab tokens: `glrt-`, `glpat-` and similar, and old registration tokens, which begin with `GR1348941`.
fn without_tokens(word: &str) -> String {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let hide = |part: &str| {
        let kind = part.strip_prefix("gl").and_then(|rest| rest.split_once('-'));
        let is_token = kind.is_some_and(|(kind, secret)| {
            kind.bytes().all(|byte| byte.is_ascii_lowercase()) && secret.len() >= SHORTEST_TOKEN
        });
        match is_token || part.starts_with("GR1348941") {
            true => HIDDEN.to_owned(),
            false => part.to_owned(),
        }
    };
    let (mut shown, mut part) = (String::new(), String::new());
    for character in word.chars() {
        if is_of_token(character) {
            part.push(character);
        } else {
            shown += &hide(&std::mem::take(&mut part));
            shown.push(character);
        }
    }
    shown + &hide(&part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[&str]) -> Option<String> {
        last_error(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn last_error_is_found_in_each_format() {
        let colour = "\u{1b}[31;1mFATAL: \u{1b}[0;m \u{1b}[31;1mno config\u{1b}[0;m   ";
        assert_eq!(shown(&["ERROR: before", colour, "INFO: after"]).unwrap().trim_end(), "FATAL:  no config");
        for line in [
            "ERROR: a",
            "PANIC: a",
            "panic: runtime error: a",
            "time=\"x\" level=fatal msg=\"a\"",
            "{\"level\":\"error\",\"msg\":\"a\"}",
        ] {
            assert_eq!(shown(&[line, "WARNING: b", "a line without level"]).as_deref(), Some(line));
        }
        assert_eq!(shown(&["INFO: no error: a", "errors: 3", "é"]), None);
        assert_eq!(shown(&[]), None);
    }

    #[test]
    fn tokens_and_pem_blocks_are_hidden() {
        let token = "t1_0123456789abcdefghij";
        for (line, wanted) in [
            (format!("ERROR: token=glrt-{token} is invalid"), "ERROR: token=[hidden] is invalid"),
            (format!("ERROR: \"glpat-{token}\",\"GR1348941{token}\""), "ERROR: \"[hidden]\",\"[hidden]\""),
            (
                format!("ERROR: https://x:glrt-{token}@gitlab.example/"),
                "ERROR: https://x:[hidden]@gitlab.example/",
            ),
            ("ERROR: key -----BEGIN PRIVATE KEY-----MIIB".to_owned(), "ERROR: key [hidden]"),
            (
                "ERROR: gitlab-runner-helper gl-1 global-settings".to_owned(),
                "ERROR: gitlab-runner-helper gl-1 global-settings",
            ),
        ] {
            assert_eq!(shown(&[&line]).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn long_line_is_cut() {
        let line = format!("ERROR: {}", "é".repeat(1000));
        assert_eq!(shown(&[&line]).unwrap().chars().count(), WIDTH + 1);
    }
}

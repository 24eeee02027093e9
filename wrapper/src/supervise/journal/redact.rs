//! Makes log lines safe to show: in a Terraform error and in `status`.
//!
//! A user with read-only access must not see the runner's tokens, nor the projects of its jobs, which URLs contain. Everything that looks
//! like a token or a URL is hidden, even if this hides too much.

use std::mem;

/// Maximum number of lines.
const MAX_LINES: usize = 10;

/// Maximum number of characters per line.
const WIDTH: usize = 300;

/// Replacement of a secret.
const HIDDEN: &str = "[hidden]";

/// Minimum length of a GitLab token after its prefix.
const SHORTEST: usize = 16;

/// Parts of names whose values are secrets.
const SECRETS: [&str; 7] = ["token", "password", "passwd", "secret", "authorization", "credential", "key"];

/// The last of these lines, without control characters and secrets, and shortened.
pub(super) fn presentable(raw: &[String]) -> Vec<String> {
    let plain: Vec<_> = raw.iter().map(|line| plain(line)).collect();
    let full = without_keys(&plain).into_iter().map(|line| cut(&conceal(&line)));
    let mut lines: Vec<_> = full.filter(|line| !line.is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(MAX_LINES));
    lines
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// Removes escape sequences (ECMA-48) and other control characters.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => match characters.next() {
                // A control sequence ends with a letter or similar; an operating system command ends with BEL or another ESC.
                Some('[') => drop(characters.by_ref().find(|end| ('@'..='~').contains(end))),
                Some(']') => drop(characters.by_ref().find(|end| ['\u{7}', '\u{1b}'].contains(end))),
                _ => {}
            },
            '\t' => text.push(' '),
            character if character.is_control() => {}
            character => text.push(character),
        }
    }
    text.trim_end().to_owned()
}

/// Replaces each PEM block, such as a private key. The first line of a block, or the last one, may be missing.
fn without_keys(lines: &[String]) -> Vec<String> {
    let (mut shown, mut is_inside): (Vec<String>, _) = (Vec::new(), false);
    for line in lines {
        if !is_inside && let Some((before, _)) = line.split_once(PEM_BEGIN) {
            shown.push(format!("{before}{HIDDEN}"));
            is_inside = true;
        } else if !is_inside && line.contains(PEM_END) {
            shown = vec![HIDDEN.to_owned()];
        } else if !is_inside {
            shown.push(line.clone());
        }
        is_inside = is_inside && !line.contains(PEM_END);
    }
    shown
}

const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// Minimum length of a word that can be a line of a key.
const KEY_LINE: usize = 40;

/// Whether the word may be a line of a PEM block, whose first and last lines were not read.
fn is_key_line(word: &str) -> bool {
    word.len() >= KEY_LINE && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// Hides secrets, word by word.
fn conceal(line: &str) -> String {
    let mut hide_next = false;
    let is_login = line.split(' ').any(|word| matches!(bare(word), "login" | "sshpass"));
    let words = line.split(' ').map(|word| {
        if word.is_empty() {
            return String::new();
        }
        let word = conceal_url(word);
        let follows = announces_secret(&word) || is_login && bare(&word) == "-p";
        if (mem::replace(&mut hide_next, follows) && !follows) || is_key_line(&word) {
            return HIDDEN.to_owned();
        }
        if is_login && bare(&word).strip_prefix("-p").is_some_and(|value| !value.is_empty()) {
            return format!("-p{HIDDEN}");
        }
        conceal_tokens(&conceal_value(&word))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The word without quotes and brackets.
fn bare(word: &str) -> &str {
    word.trim_matches(['"', '\'', '`', ',', '(', ')', '[', ']'])
}

/// Whether the next word is a secret: `Authorization: Bearer x`, `token = x`, `--password x`.
fn announces_secret(word: &str) -> bool {
    let lower = word.to_lowercase();
    let name = bare(&lower);
    let is_flag = name.starts_with('-') && !name.contains(['=', ':']) && is_secret(name);
    is_flag
        || matches!(name, "bearer" | "basic" | "=" | ":")
        || name.strip_suffix([':', '=']).is_some_and(is_secret)
}

fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| name.contains(secret))
}

/// `name=x` and `name:x`, if the value of the name is a secret, also in JSON: the rest of the word is hidden.
fn conceal_value(word: &str) -> String {
    let ends = word.match_indices(['=', ':']).map(|(at, _)| at);
    let secret = ends.filter(|at| at + 1 < word.len()).find(|at| {
        let name = word[..*at].rsplit(['{', ',', '&', ';', '?']).next().unwrap_or_default();
        is_secret(&name.to_lowercase())
    });
    match secret {
        Some(at) => format!("{}{HIDDEN}", &word[..=at]),
        None => word.to_owned(),
    }
}

/// Shows only the scheme and host of a URL.
fn conceal_url(word: &str) -> String {
    let Some((before, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['/', '?', '#', '"', '\'', ')', '>', ',', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = match path {
        "" | "/" => "",
        path if path.starts_with(['/', '?', '#']) => "/…",
        _ => "…",
    };
    format!("{before}://{host}{path}")
}

/// Hides GitLab tokens: `glrt-`, `glpat-` and similar, and old registration tokens, which begin with `GR1348941`.
fn conceal_tokens(word: &str) -> String {
    let mut shown = String::new();
    let mut rest = word;
    while let Some((at, prefix)) = find_token(rest) {
        let (before, token) = rest.split_at(at);
        let end = token.find(|c: char| !is_token_character(c)).unwrap_or(token.len());
        shown.push_str(before);
        shown.push_str(prefix);
        shown.push_str(HIDDEN);
        rest = &token[end..];
    }
    shown.push_str(rest);
    shown
}

/// Position of the first token, and its prefix.
fn find_token(text: &str) -> Option<(usize, &str)> {
    let starts = text.char_indices().filter(|(at, _)| {
        !text[..*at].chars().next_back().is_some_and(|before| before.is_ascii_alphanumeric())
    });
    starts.filter_map(|(at, _)| token_prefix(&text[at..]).map(|prefix| (at, prefix))).next()
}

fn token_prefix(text: &str) -> Option<&str> {
    const OF_OLD: &str = "GR1348941";
    if text.starts_with(OF_OLD) {
        return text.get(..OF_OLD.len());
    }
    let (kind, secret) = text.strip_prefix("gl")?.split_once('-')?;
    let is_kind = (1..=8).contains(&kind.len()) && kind.bytes().all(|byte| byte.is_ascii_lowercase());
    let length = secret.chars().take_while(|c| is_token_character(*c)).count();
    (is_kind && length >= SHORTEST).then(|| text.get(..kind.len() + 3)).flatten()
}

fn is_token_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.=".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        presentable(&[line.to_owned()]).concat()
    }

    #[test]
    fn last_ten_nonblank_lines_are_kept() {
        let raw: Vec<_> = (1..=30).flat_map(|number| [format!("line {number}"), "  ".to_owned()]).collect();
        let lines = presentable(&raw);
        assert_eq!((lines.len(), lines[0].as_str(), lines[9].as_str()), (10, "line 21", "line 30"));
        assert_eq!(presentable(&[]), [""; 0]);
    }

    #[test]
    fn long_log_line_is_cut_at_char_boundary() {
        let line = shown(&"ä".repeat(1000));
        assert_eq!(line.chars().count(), WIDTH + 1);
        assert!(line.ends_with("ä…"));
    }

    #[test]
    fn terminal_escapes_are_removed_from_log_lines() {
        assert_eq!(shown("\u{1b}[31;1mERROR:\u{1b}[0;m no\tconfig \r"), "ERROR: no config");
        assert_eq!(shown("\u{1b}]0;title\u{7}a\u{1b}cb\u{0}\u{9b}2J"), "ab2J");
        assert_eq!(shown("a\u{1b}["), "a");
    }

    #[test]
    fn keys_in_log_lines_are_redacted() {
        let body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW";
        let (begin, end) = ("-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----");
        let shown =
            |lines: &[&str]| presentable(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        assert_eq!(shown(&["a", begin, body, "short==", end, "b"]), ["a", HIDDEN, "b"]);
        assert_eq!(shown(&["a", begin, body]), ["a", HIDDEN]);
        assert_eq!(shown(&["short==", body, end, "b"]), [HIDDEN, "b"]);
        assert_eq!(shown(&[&format!("key={begin}\\n{body}\\n{end}"), "b"]), [&format!("key={HIDDEN}"), "b"]);
        assert_eq!(shown(&[body, &format!("x {body}")]), [HIDDEN.to_owned(), format!("x {HIDDEN}")]);
    }

    #[test]
    fn runner_messages_are_not_redacted() {
        for line in [
            "FATAL: open /etc/gitlab-runner/config.toml: no such file or directory",
            "ERROR: Verifying runner... is not valid  runner=abcd12345 status=403 Forbidden",
            "panic: runtime error: index out of range [3] with length 3",
            r#"{"level":"fatal","msg":"listen tcp 127.0.0.1:9252: bind: address already in use","time":"2026-01-01T00:00:00Z"}"#,
            "the glob-pattern and glow-in-the-dark words, and gl-x, are none",
        ] {
            assert_eq!(shown(line), line);
        }
    }

    #[test]
    fn secret_after_a_flag_is_redacted() {
        for line in [
            "docker login -u ci -p hunter2 registry",
            "docker login -phunter2 registry",
            "docker login --password hunter2 registry",
            "docker login --password=hunter2 registry",
            "docker login --password  hunter2 registry",
            "docker login \"--password\" \"hunter2\"",
            "exec [\"docker\" \"login\" \"-u\" \"ci\" \"-p\" \"hunter2\"]",
            "exec [docker login -u ci -p hunter2]",
            "exec [docker login -u ci -phunter2]",
            "`docker login -p 'hunter2'`",
            "msg=\"docker login -p hunter2\" level=info",
            "(docker login -p hunter2)",
            "helm registry login --password hunter2",
            "mysqldump --password hunter2 db",
            "sshpass -p hunter2 ssh host",
            "sshpass -phunter2 ssh host",
            "gitlab-runner register --token hunter2",
            "glab --private-token hunter2",
            "vault --client-secret hunter2",
        ] {
            assert!(!shown(line).contains("hunter2"), "{line}: {}", shown(line));
        }
    }

    #[test]
    fn secrets_in_log_lines_are_redacted() {
        insta::assert_snapshot!(
            [
                "token glrt-t3_0123456789abcdefghij for runner=\"glrt-0123456789-ab.01.0abc\"",
                "registration-token=GR1348941abcdefghijklmnop",
                "(GR1348941abcdefghijklmnop)",
                "PRIVATE-TOKEN: abcdefghij",
                "Authorization: Bearer abcdefghij now",
                "S3 SecretKey = abcdefghij",
                "password:hunter2 x",
                "JOB-TOKEN=\"abc\"",
                r#"{"level":"info","runner_token":"abc","msg":"x"}"#,
                "cannot GET https://user:hunter2@gitlab.example.com:8443/group/project?private_token=x: 403",
                "proxy=http://user:p@ss@proxy:3128",
                "see https://gitlab.example.com/ or <https://gitlab.example.com>",
                "docker login -u ci -p hunter2 registry",
                "`docker login --password hunter2 -u ci registry`",
                "podman login -phunter2 registry; docker run -p 80:80 x",
                "two in a row: glrt-0123456789abcdef,glpat-0123456789abcdef",
            ]
            .map(shown)
            .join("\n")
        );
    }
}

//! Escapes text for terminals. Clients choose the id and reason of a drain, and the runner writes stages and log lines; none of them may
//! send control sequences to the terminal of another user, who may be root.

/// The text with control characters escaped as `\u{1b}`; line breaks are kept.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The same, with line breaks escaped.
pub(crate) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(visible("a\u{1b}[2Jb\r\n\u{9b}cé"), "a\\u{1b}[2Jb\\u{d}\n\\u{9b}cé");
        assert_eq!(visible_line("a\nb"), "a\\nb");
    }
}

//! Texts as a terminal may show them. Who drains a runner chooses id and reason, and the runner its stages and log lines; none of them is to
//! paint on the terminal of whoever looks, who may be root.

/// The text with control characters written as `\u{1b}`; line breaks stay.
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

/// The same for a text that is to stay in its line.
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

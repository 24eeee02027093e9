//! Escapes control characters in diagnostics.
//!
//! A diagnostic contains text of hosts: a banner, the output of a command, the reason of a wrapper. Terraform prints it unchanged, so a
//! host could overwrite lines, change a title, or reverse the text direction.

/// Escapes control characters other than line breaks and tabs, and characters that change the text direction, as `\u{1b}`.
pub(super) fn visible(text: String) -> String {
    if !text.contains(is_active) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            character if is_active(character) => shown.extend(character.escape_unicode()),
            character => shown.push(character),
        }
    }
    shown
}

fn is_active(character: char) -> bool {
    let is_layout = matches!(character, '\n' | '\t');
    // Explicit directional formatting characters (UAX #9).
    let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() && !is_layout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let text = "a\u{1b}]0;title\u{7}\tb\r\nc\rd\u{9b}2J \u{202e}gnirts";
        let shown = "a\\u{1b}]0;title\\u{7}\tb\nc\\u{d}d\\u{9b}2J \\u{202e}gnirts";
        assert_eq!(visible(text.into()), shown);
    }

    #[test]
    fn printable_text_is_unchanged() {
        let text = "mänager \"m1\":\n\n\tжурнал 日誌 ✓";
        assert_eq!(visible(text.into()), text);
    }
}

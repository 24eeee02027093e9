//! Limits the texts that a host sends: the wrapper, or the SSH server. They are in errors and in the state, so that a hostile host could
//! otherwise make these as large as it wants.

/// For a text of one sentence, such as a reason.
pub const MAX_TEXT: usize = 1 << 10;

/// The text, or its beginning: at most `limit` bytes where Terraform prints it or writes it to the state.
pub fn shortened(text: String, limit: usize) -> String {
    let mut written = 0;
    let cut = text.char_indices().find(|(_, character)| {
        written += size(*character);
        written > limit
    });
    match cut {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The length of the character as Terraform or this provider escapes it. A line break has a prefix in each diagnostic.
fn size(character: char) -> usize {
    match character {
        '<' | '>' | '&' | '\n' => r"\u003c".len(),
        other => other.escape_debug().len().max(other.len_utf8()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("12345".to_owned(), 5), "12345");
        assert_eq!(shortened("123456".to_owned(), 5), "12345…");
        assert_eq!(shortened("ä€😀😀".to_owned(), 10), "ä€😀…");
    }

    #[test]
    fn escaped_characters_count_in_escaped_form() {
        for character in ['\u{1b}', '\n', '<', '\u{202e}', '"', '\\', '\u{2028}'] {
            let text = shortened(character.to_string().repeat(10_000), MAX_TEXT);
            let shown = text.escape_debug().to_string().len();
            let stored = serde_json::to_string(&text).unwrap().replace('<', r"\u003c").len();
            assert!(shown.max(stored) <= MAX_TEXT + 8, "{character:?}: {shown} {stored}");
        }
    }
}

//! Replaces the `:authority` in a block of compressed headers (RFC 7541) without decompressing it.
//!
//! Both ends of a connection keep a dynamic table of sent fields, which later blocks refer to. A field that enters the table may become
//! shorter here, but never longer: h2's table then has space for more entries than the client's table, and contains every entry that the
//! client can refer to. The empty value is an exception, because it becomes one byte longer; no known client sends it in a way that enters
//! the table.

/// Index of the name in the static table.
const AUTHORITY: usize = 1;

/// The name as a plain literal, and Huffman-coded.
const NAME: &[u8] = b":authority";
const NAME_CODED: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];

/// The new value, one character.
const VALUE: &[u8] = b"\x01w";

/// The block with another value for `:authority`; `None` if the block has none, or is malformed.
pub(crate) fn with_authority(block: &[u8]) -> Option<Vec<u8>> {
    let mut named = Vec::with_capacity(block.len() + VALUE.len());
    let mut rest = block;
    let mut found = false;
    while let Some(field) = Field::read(rest) {
        let (bytes, behind) = rest.split_at_checked(field.length)?;
        match field.authority {
            None => named.extend_from_slice(bytes),
            Some(AuthorityPosition::Value(at)) => {
                named.extend_from_slice(bytes.get(..at)?);
                named.extend_from_slice(VALUE);
            }
            Some(AuthorityPosition::Table) => {
                // A literal that does not enter the table.
                named.push(0x01);
                named.extend_from_slice(VALUE);
            }
        }
        found |= field.authority.is_some();
        rest = behind;
    }
    (found && rest.is_empty()).then_some(named)
}

/// One field of a header block.
struct Field {
    /// Length in bytes.
    length: usize,
    /// Position of its value, if the field is `:authority`.
    authority: Option<AuthorityPosition>,
}

enum AuthorityPosition {
    /// Offset of the value in the field.
    Value(usize),
    /// The empty value of the static table.
    Table,
}

impl Field {
    fn read(block: &[u8]) -> Option<Self> {
        let first = *block.first()?;
        if first & 0x80 != 0 {
            let (index, length) = integer(block, 7)?;
            return Some(Self {
                length,
                authority: (index == AUTHORITY).then_some(AuthorityPosition::Table),
            });
        }
        if first & 0xe0 == 0x20 {
            // A change of the table's size.
            return Some(Self { length: integer(block, 5)?.1, authority: None });
        }
        // A literal, with or without indexing.
        let (index, mut at) = integer(block, if first & 0x40 != 0 { 6 } else { 4 })?;
        let mut is_authority = index == AUTHORITY;
        if index == 0 {
            let (name, length) = string(block.get(at..)?)?;
            is_authority = name == NAME || name == NAME_CODED;
            at += length;
        }
        let (_, length) = string(block.get(at..)?)?;
        Some(Self { length: at + length, authority: is_authority.then_some(AuthorityPosition::Value(at)) })
    }
}

/// An encoded string, and its size including the length prefix.
fn string(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (length, at) = integer(bytes, 7)?;
    let end = at.checked_add(length)?;
    Some((bytes.get(at..end)?, end))
}

/// An integer with a prefix of `prefix` bits, and its size in bytes.
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, usize)> {
    let most = (1_usize << prefix) - 1;
    let mut number = usize::from(*bytes.first()?) & most;
    if number < most {
        return Some((number, 1));
    }
    // Four bytes of seven bits exceed the size of any block.
    for at in 1..=4_u32 {
        let index = usize::try_from(at).ok()?;
        let byte = *bytes.get(index)?;
        number += (usize::from(byte) & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Some((number, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(block: &[u8]) -> Option<Vec<u8>> {
        with_authority(block)
    }

    #[test]
    fn all_authority_encodings_are_rewritten() {
        let after = b"\x84\x40\x01x\x01y";
        let forms: [(&[u8], &[u8]); 6] = [
            (b"\x41\x03abc", b"\x41\x01w"),
            (b"\x01\x03abc", b"\x01\x01w"),
            (b"\x11\x03abc", b"\x11\x01w"),
            // Huffman-coded.
            (b"\x41\x82\x60\x7f", b"\x41\x01w"),
            (b"\x40\x0a:authority\x03abc", b"\x40\x0a:authority\x01w"),
            (b"\x81", b"\x01\x01w"),
        ];
        for (form, wanted) in forms {
            assert_eq!(named(&[form, after].concat()), Some([wanted, after].concat()), "{form:?}");
        }
        let spelled = [b"\x00\x88", NAME_CODED, b"\x03abc"].concat();
        assert_eq!(named(&spelled), Some([b"\x00\x88", NAME_CODED, b"\x01w"].concat()));
    }

    #[test]
    fn multi_byte_integers_are_decoded() {
        let long = [b"\x41\x7f\x81\x01".as_slice(), &[b'a'; 256]].concat();
        assert_eq!(named(&long), Some(b"\x41\x01w".to_vec()));
        assert_eq!(integer(&[0x1f, 0x9a, 0x0a], 5), Some((1337, 3)), "RFC 7541, C.1.2");
        assert_eq!(integer(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x01], 5), None);
    }

    #[test]
    fn missing_or_malformed_authority_is_not_found() {
        for block in [
            &b"\x83\x84\x3f\xe1\x1f\x40\x01x\x01y"[..],
            b"",
            b"\x41",
            b"\x41\x03ab",
            b"\x41\x03abc\x40",
            b"\x7f\xff",
        ] {
            assert_eq!(named(block), None, "{block:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(block in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(named) = named(&block) {
                // Longer only by the empty authorities.
                let empty = block.iter().filter(|byte| matches!(byte, 0x81 | 0x00 | 0x80)).count();
                prop_assert!(named.len() <= block.len() + 2 * empty);
            }
        }
    }
}

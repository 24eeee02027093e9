//! The `:authority` in a block of compressed headers (RFC 7541), without decompressing it.
//!
//! Both ends of a connection keep a table of what was sent, which later blocks refer to. A field that is added to it may become shorter
//! here, never longer: our end's table then has room for more than the peer's, and has all that the peer can refer to. The empty value is
//! the exception, by one byte; no client is known to send it in a way that enters the table.

/// The name's number in the static table.
const AUTHORITY: usize = 1;

/// The name where it is spelled, and Huffman-coded.
const NAME: &[u8] = b":authority";
const NAME_CODED: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];

/// The wrapper, in one character.
const VALUE: &[u8] = b"\x01w";

/// The block with another value for `:authority`; `None` when there is none in it, or the block cannot be understood.
pub(super) fn with_authority(block: &[u8]) -> Option<Vec<u8>> {
    let mut named = Vec::with_capacity(block.len() + VALUE.len());
    let mut rest = block;
    let mut found = false;
    while let Some(field) = Field::read(rest) {
        let (bytes, behind) = rest.split_at_checked(field.length)?;
        match field.authority {
            None => named.extend_from_slice(bytes),
            Some(Place::Value(at)) => {
                named.extend_from_slice(bytes.get(..at)?);
                named.extend_from_slice(VALUE);
            }
            Some(Place::Table) => {
                // As a literal that enters no table.
                named.push(0x01);
                named.extend_from_slice(VALUE);
            }
        }
        found |= field.authority.is_some();
        rest = behind;
    }
    (found && rest.is_empty()).then_some(named)
}

/// One field of a block.
struct Field {
    /// In bytes.
    length: usize,
    /// Where its value is, if it is the authority.
    authority: Option<Place>,
}

enum Place {
    /// Behind so many bytes of the field.
    Value(usize),
    /// In the static table, which has the empty one.
    Table,
}

impl Field {
    fn read(block: &[u8]) -> Option<Self> {
        let first = *block.first()?;
        if first & 0x80 != 0 {
            let (index, length) = integer(block, 7)?;
            return Some(Self { length, authority: (index == AUTHORITY).then_some(Place::Table) });
        }
        if first & 0xe0 == 0x20 {
            // The table changes its size.
            return Some(Self { length: integer(block, 5)?.1, authority: None });
        }
        // A literal, which enters the table or not.
        let (index, mut at) = integer(block, if first & 0x40 != 0 { 6 } else { 4 })?;
        let mut is_authority = index == AUTHORITY;
        if index == 0 {
            let (name, length) = string(block.get(at..)?)?;
            is_authority = name == NAME || name == NAME_CODED;
            at += length;
        }
        let (_, length) = string(block.get(at..)?)?;
        Some(Self { length: at + length, authority: is_authority.then_some(Place::Value(at)) })
    }
}

/// A string as it stands there, coded or not, and how many bytes it takes with its length before it.
fn string(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (length, at) = integer(bytes, 7)?;
    let end = at.checked_add(length)?;
    Some((bytes.get(at..end)?, end))
}

/// A number that begins with the last `prefix` bits of the first byte, and how many bytes it takes.
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, usize)> {
    let most = (1_usize << prefix) - 1;
    let mut number = usize::from(*bytes.first()?) & most;
    if number < most {
        return Some((number, 1));
    }
    // Four bytes of seven bits are more than any block has.
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
    fn all_authority_encodings() {
        let after = b"\x84\x40\x01x\x01y";
        let forms: [(&[u8], &[u8]); 6] = [
            (b"\x41\x03abc", b"\x41\x01w"),
            (b"\x01\x03abc", b"\x01\x01w"),
            (b"\x11\x03abc", b"\x11\x01w"),
            // Coded.
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
    fn multi_byte_integers() {
        let long = [b"\x41\x7f\x81\x01".as_slice(), &[b'a'; 256]].concat();
        assert_eq!(named(&long), Some(b"\x41\x01w".to_vec()));
        assert_eq!(integer(&[0x1f, 0x9a, 0x0a], 5), Some((1337, 3)), "RFC 7541, C.1.2");
        assert_eq!(integer(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x01], 5), None);
    }

    #[test]
    fn missing_or_malformed_authority() {
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

//! The contents of a saved plan, which is a zip archive.

/// The parts of the archive: name and content.
pub(crate) fn parts(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    // The central directory is at the end; the header before each part may omit its length.
    let end = archive.windows(4).rposition(|it| it == b"PK\x05\x06").expect("the end of the directory");
    let (count, mut at) = (number(archive, end + 10, 2), number(archive, end + 16, 4));
    let mut parts = Vec::new();
    for _ in 0..count {
        assert_eq!(&archive[at..at + 4], b"PK\x01\x02", "an entry of the directory");
        let (method, packed, unpacked) =
            (number(archive, at + 10, 2), number(archive, at + 20, 4), number(archive, at + 24, 4));
        let lengths = [28, 30, 32].map(|field| number(archive, at + field, 2));
        let name = String::from_utf8(archive[at + 46..at + 46 + lengths[0]].to_vec()).unwrap();
        let local = number(archive, at + 42, 4);
        let start = local + 30 + number(archive, local + 26, 2) + number(archive, local + 28, 2);
        let body = &archive[start..start + packed];
        let content = match method {
            0 => body.to_vec(),
            8 => miniz_oxide::inflate::decompress_to_vec(body).unwrap(),
            other => panic!("{name} is packed by method {other}"),
        };
        assert_eq!(content.len(), unpacked, "{name}");
        parts.push((name, content));
        at += 46 + lengths.iter().sum::<usize>();
    }
    parts
}

/// Little-endian, as all numbers of the format.
fn number(archive: &[u8], at: usize, bytes: usize) -> usize {
    archive[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

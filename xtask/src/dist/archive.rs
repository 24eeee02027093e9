//! Archives: zip, tar and gzip. Their bytes depend only on the files, the time, and the version of the compression library.

use anyhow::Context as _;
use miniz_oxide::deflate::compress_to_vec;

use super::date;

/// A file of an archive, with a relative path.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

/// A type of zip files: a regular file of Unix.
const REGULAR: u32 = 0o100_000;

/// A zip file. The files keep their order.
pub(super) fn zip(files: &[File], epoch: u64, level: u8) -> anyhow::Result<Vec<u8>> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        let body = compress_to_vec(&file.bytes, level);
        let offset = u32::try_from(out.len()).context("the archive is larger than 4 GiB")?;
        let mut common = Vec::new();
        // Needs version 2.0; no flags; deflate.
        for value in [20, 0, 8] {
            common.extend(u16::to_le_bytes(value));
        }
        common.extend(dos_time(epoch)?.to_le_bytes());
        for value in [crc32(&file.bytes), size(&body)?, size(&file.bytes)?] {
            common.extend(value.to_le_bytes());
        }
        common.extend(u16::try_from(file.name.len()).context("a long name")?.to_le_bytes());
        common.extend([0; 2]);

        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(file.name.as_bytes());
        out.extend(body);

        // Made by version 2.0 on Unix, which has modes.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        // No comment, first disk, no internal attributes.
        directory.extend([0; 6]);
        directory.extend(((REGULAR | file.mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(file.name.as_bytes());
    }
    let count = u16::try_from(files.len()).context("too many files")?.to_le_bytes();
    let (start, length) = (size(&out)?, size(&directory)?);
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count);
    out.extend(count);
    out.extend(length.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    Ok(out)
}

/// A time with steps of two seconds, from 1980 on.
fn dos_time(epoch: u64) -> anyhow::Result<u32> {
    let time = date::utc(epoch.max(315_532_800))?;
    let year = u32::try_from(time.year() - 1980)?;
    let fields = [
        (u8::from(time.month()), 21),
        (time.day(), 16),
        (time.hour(), 11),
        (time.minute(), 5),
        (time.second() / 2, 0),
    ];
    Ok(fields.into_iter().fold(year << 25, |bits, (value, at)| bits | u32::from(value) << at))
}

/// A tar file in the format of POSIX, owned by root. The files keep their order.
pub(super) fn tar(files: &[File], epoch: u64) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for file in files {
        let mut header = [0; 512];
        let mut put = |at: usize, text: &str| {
            header.iter_mut().skip(at).zip(text.bytes()).for_each(|(to, from)| *to = from);
        };
        anyhow::ensure!(file.name.len() <= 100, "the path {} is too long", file.name);
        put(0, &file.name);
        put(100, &format!("{:07o}", file.mode));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", file.bytes.len()));
        put(136, &format!("{epoch:011o}"));
        // The checksum is computed with spaces in its field.
        put(148, "        0");
        put(257, "ustar\x0000");
        put(265, "root");
        put(297, "root");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        let text = format!("{sum:06o}\0 ");
        header.iter_mut().skip(148).zip(text.bytes()).for_each(|(to, from)| *to = from);
        out.extend(header);
        out.extend(&file.bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    Ok(out)
}

/// A gzip file without name and time.
pub(super) fn gzip(bytes: &[u8], level: u8) -> anyhow::Result<Vec<u8>> {
    let mut out = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03".to_vec();
    out.extend(compress_to_vec(bytes, level));
    out.extend(crc32(bytes).to_le_bytes());
    out.extend(size(bytes)?.to_le_bytes());
    Ok(out)
}

fn size(bytes: &[u8]) -> anyhow::Result<u32> {
    u32::try_from(bytes.len()).context("a file is larger than 4 GiB")
}

/// The checksum of zip and gzip.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |value: u32, _| if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
    let mut table = [0; 256];
    for (at, entry) in (0..).zip(&mut table) {
        *entry = (0..8).fold(at, step);
    }
    let last = bytes.iter().fold(u32::MAX, |value, byte| {
        let at = value as u8 ^ byte;
        table[usize::from(at)] ^ value >> 8
    });
    !last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_matches_a_known_value() {
        // The check value of this polynomial.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn dos_time_starts_in_1980() {
        assert_eq!(dos_time(0).unwrap(), 1 << 21 | 1 << 16);
        assert_eq!(
            dos_time(1_700_000_000).unwrap(),
            (43 << 25 | 11 << 21 | 14 << 16) | (22 << 11 | 13 << 5 | 10)
        );
    }
}

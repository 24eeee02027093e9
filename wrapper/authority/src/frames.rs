//! Parses the client's side of an HTTP/2 connection (RFC 9113) frame by frame.

use crate::hpack;

/// The connection preface of every client.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Size of a frame header: length (3), type, flags, stream (4).
const HEAD: usize = 9;

const HEADERS: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The largest content of a frame that a client can send: the server's setting is HTTP/2's default, and h2 closes the connection for a
/// larger one.
const MAX_CONTENT: usize = 16_384;

/// Replaces the authority of requests in a stream of bytes. Header blocks over several frames pass unchanged.
#[derive(Debug, Default)]
pub(crate) struct Rewriter {
    /// The part of the preface or of a frame received so far.
    incomplete: Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Preface,
    Frames,
    /// The connection does not use HTTP/2, or h2 will close it.
    PassAll,
}

impl Rewriter {
    /// Consumes `input`, and appends all complete frames to `out`.
    pub(crate) fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.incomplete.extend_from_slice(input);
        let mut rest = self.incomplete.as_slice();
        while !rest.is_empty() {
            match (self.stage, rest) {
                (Stage::Preface, _) if rest.len() < PREFACE.len() && PREFACE.starts_with(rest) => break,
                (Stage::Preface, _) if rest.starts_with(PREFACE) => {
                    out.extend_from_slice(PREFACE);
                    rest = &rest[PREFACE.len()..];
                    self.stage = Stage::Frames;
                }
                (Stage::Frames, [a, b, c, ..]) if content_length([*a, *b, *c]) <= MAX_CONTENT => {
                    let length = HEAD + content_length([*a, *b, *c]);
                    let Some((frame, after)) = rest.split_at_checked(length) else { break };
                    match rewritten(frame) {
                        Some(frame) => out.extend_from_slice(&frame),
                        None => out.extend_from_slice(frame),
                    }
                    rest = after;
                }
                (Stage::Frames, [] | [_] | [_, _]) => break,
                _ => {
                    out.extend_from_slice(rest);
                    rest = &[];
                    self.stage = Stage::PassAll;
                }
            }
        }
        let done = self.incomplete.len() - rest.len();
        self.incomplete.drain(..done);
    }
}

fn content_length([a, b, c]: [u8; 3]) -> usize {
    usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)
}

/// The frame with another authority. `None` for a frame without one, and for an invalid frame, which h2 refuses.
fn rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, content) = frame.split_at_checked(HEAD)?;
    let (kind, flags) = (head[3], head[4]);
    if kind != HEADERS || flags & END_HEADERS == 0 {
        return None;
    }
    let padding = if flags & PADDED != 0 { usize::from(*content.first()?) } else { 0 };
    let before = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let (before, block) = content.split_at_checked(before)?;
    let (block, padding) = block.split_at_checked(block.len().checked_sub(padding)?)?;
    let content = [before, &hpack::with_authority(block)?, padding].concat();
    let [.., a, b, c] = content.len().to_be_bytes();
    (content.len() <= MAX_CONTENT).then(|| [&[a, b, c], &head[3..], &content].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, content: &[u8]) -> Vec<u8> {
        let [.., a, b, c] = content.len().to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, 1], content].concat()
    }

    /// Two requests of a client with these HEADERS frames.
    fn conversation(headers: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = [PREFACE, &frame(4, 0, &[0, 3, 0, 0, 0, 100])].concat();
        for headers in headers {
            bytes.extend_from_slice(headers);
            // A message that contains bytes like those of a HEADERS frame.
            bytes.extend_from_slice(&frame(0, 1, &frame(HEADERS, END_HEADERS, b"\x41\x03abc")));
            bytes.extend_from_slice(&frame(0, 1, b""));
        }
        bytes
    }

    fn rewrite(bytes: &[u8], chunk: usize) -> Vec<u8> {
        let (mut rewriter, mut out) = (Rewriter::default(), Vec::new());
        for part in bytes.chunks(chunk) {
            rewriter.push(part, &mut out);
        }
        out
    }

    /// `:authority: /run/x` between two `:method: POST`.
    const BLOCK: &[u8] = b"\x83\x41\x06/run/x\x83";
    const NAMED: &[u8] = b"\x83\x41\x01w\x83";

    #[test]
    fn authority_is_rewritten_for_any_chunking() {
        let padded = |block: &[u8]| [b"\x02", block, b"\0\0"].concat();
        let first = |block: &[u8]| [b"\0\0\0\0\x10", block].concat();
        let both = |block: &[u8]| [b"\x02\0\0\0\0\x10", block, b"\0\0"].concat();
        let frames = |block: &[u8]| {
            vec![
                frame(HEADERS, END_HEADERS, block),
                frame(HEADERS, END_HEADERS | PADDED, &padded(block)),
                frame(HEADERS, END_HEADERS | PRIORITY, &first(block)),
                frame(HEADERS, END_HEADERS | PADDED | PRIORITY, &both(block)),
            ]
        };
        let (sent, wanted) = (conversation(&frames(BLOCK)), conversation(&frames(NAMED)));
        for chunk in 1..sent.len() {
            assert_eq!(rewrite(&sent, chunk), wanted, "in parts of {chunk}");
        }
    }

    #[test]
    fn malformed_frames_pass_unchanged() {
        let spanning = frame(HEADERS, 0, BLOCK);
        let too_much_padding = frame(HEADERS, END_HEADERS | PADDED, b"\x7f\x41\x06/run/x");
        let cut = frame(HEADERS, END_HEADERS, b"\x41\x7f/run/x");
        let none = frame(HEADERS, END_HEADERS, b"");
        let sent = conversation(&[spanning, too_much_padding, cut, none]);
        assert_eq!(rewrite(&sent, 7), sent);
        let http1 = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(rewrite(http1, 5), http1);
    }

    proptest! {
        /// All bytes pass, except incomplete frames.
        #[test]
        fn only_authority_fields_are_rewritten(
            noise in prop::collection::vec(any::<u8>(), 0..200),
            frames in prop::collection::vec((0u8..10, any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            chunk in 1usize..50,
        ) {
            let _no_panic = rewrite(&[PREFACE, &noise].concat(), chunk);
            let frames: Vec<_> = frames
                .iter()
                .map(|(kind, flags, content)| frame(*kind, if *kind == HEADERS { flags & !END_HEADERS } else { *flags }, content))
                .collect();
            let sent = conversation(&frames);
            prop_assert_eq!(rewrite(&sent, chunk), sent);
        }
    }
}

//! Parses the client's side of an HTTP/2 connection (RFC 9113) frame by frame.

use super::hpack;

/// The connection preface of every client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Size of a frame header: length (3), type, flags, stream (4).
const HEAD: usize = 9;

const HEADERS: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The largest frame that a client may send, because the server does not allow larger ones. Header blocks over several frames pass
/// unchanged.
const LARGEST: usize = 16_384;

/// Replaces the authority of requests in a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Rewriter {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Number of preface bytes received.
    Preface(usize),
    /// The part of a frame header received so far.
    Head(Vec<u8>),
    /// Remaining bytes of a frame that passes unchanged.
    Pass(usize),
    /// A HEADERS frame: its header, and the part of its content received so far.
    Headers { head: [u8; HEAD], content: Vec<u8>, length: usize },
    /// The connection does not use HTTP/2.
    Blind,
}

impl Default for State {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Rewriter {
    /// Consumes `input`, and appends all complete frames to `out`.
    pub(super) fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while !input.is_empty() {
            let state = std::mem::take(&mut self.state);
            self.state = match state {
                State::Blind => {
                    out.extend_from_slice(input);
                    self.state = State::Blind;
                    return;
                }
                State::Preface(seen) => {
                    let part = take(&mut input, PREFACE.len() - seen);
                    out.extend_from_slice(part);
                    let known = PREFACE.get(seen..seen + part.len()) == Some(part);
                    match seen + part.len() {
                        _ if !known => State::Blind,
                        seen if seen < PREFACE.len() => State::Preface(seen),
                        _ => State::Head(Vec::new()),
                    }
                }
                State::Head(mut head) => {
                    head.extend_from_slice(take(&mut input, HEAD - head.len()));
                    match <[u8; HEAD]>::try_from(head) {
                        Ok(head) => begin(head, out),
                        Err(part) => State::Head(part),
                    }
                }
                State::Pass(left) => {
                    let part = take(&mut input, left);
                    out.extend_from_slice(part);
                    pass(left - part.len())
                }
                State::Headers { head, mut content, length } => {
                    content.extend_from_slice(take(&mut input, length - content.len()));
                    if content.len() < length {
                        State::Headers { head, content, length }
                    } else {
                        headers(head, &content, out);
                        State::Head(Vec::new())
                    }
                }
            };
        }
    }
}

fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (part, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    part
}

fn begin(head: [u8; HEAD], out: &mut Vec<u8>) -> State {
    let [a, b, c, kind, flags, ..] = head;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if kind == HEADERS && flags & END_HEADERS != 0 && (1..=LARGEST).contains(&length) {
        return State::Headers { head, content: Vec::with_capacity(length), length };
    }
    out.extend_from_slice(&head);
    pass(length)
}

fn pass(left: usize) -> State {
    if left == 0 { State::Head(Vec::new()) } else { State::Pass(left) }
}

/// Appends the frame, with another authority if it has one. Malformed frames pass unchanged, so that h2 rejects them.
fn headers(head: [u8; HEAD], content: &[u8], out: &mut Vec<u8>) {
    let rewritten = split(head[4], content).and_then(|(before, block, after)| {
        let block = hpack::with_authority(block)?;
        let content = [before, &block, after].concat();
        let [.., a, b, c] = content.len().to_be_bytes();
        let [_, _, _, rest @ ..] = head;
        // The content never becomes larger.
        (content.len() <= LARGEST).then_some(([a, b, c], rest, content))
    });
    match rewritten {
        Some((length, rest, content)) => {
            out.extend_from_slice(&length);
            out.extend_from_slice(&rest);
            out.extend_from_slice(&content);
        }
        None => {
            out.extend_from_slice(&head);
            out.extend_from_slice(content);
        }
    }
}

/// The bytes before the header block, the block, and the padding after it.
fn split(flags: u8, content: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (mut before, mut padding) = (0, 0);
    if flags & PADDED != 0 {
        padding = usize::from(*content.first()?);
        before += 1;
    }
    if flags & PRIORITY != 0 {
        before += 5;
    }
    let end = content.len().checked_sub(padding)?;
    Some((content.get(..before)?, content.get(before..end)?, content.get(end..)?))
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
    fn authority_rewritten_for_any_chunking() {
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

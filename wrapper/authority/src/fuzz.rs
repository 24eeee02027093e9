//! Comparison with h2's own decoder, for the fuzz target in `tests/fuzz/` and for the tests below.

#![allow(clippy::panic, reason = "a failed comparison panics, as fuzz targets and tests do")]

use futures::FutureExt;
use http::request::Parts;
use tokio::io::{AsyncWriteExt, duplex};

use crate::frames::{PREFACE, Rewriter};

/// A client's first frame: settings, none of them changed.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Panics unless h2 receives the same requests from a client with and without the rewriter, but for their authorities.
pub fn authority(frames: &[u8]) {
    let sent = [PREFACE, SETTINGS, frames].concat();
    let rewritten = rewrite(&sent, sent.len());
    // An empty authority grows, also in h2's table of fields, where the client's next reference could then point to another field.
    if rewritten.len() > sent.len() {
        return;
    }
    let after = received(&rewritten);
    for (stream, before) in received(&sent) {
        let found = after.iter().find(|(other, _)| *other == stream);
        let (_, after) =
            found.unwrap_or_else(|| panic!("h2 rejects stream {stream}, without the rewriter it does not"));
        assert_eq!(after.method, before.method);
        assert_eq!(after.uri.path_and_query(), before.uri.path_and_query());
        assert_eq!(after.headers, before.headers);
        assert_eq!(
            after.uri.authority().map(|authority| authority.as_str()),
            before.uri.authority().map(|_| "w")
        );
    }
}

fn rewrite(sent: &[u8], chunk: usize) -> Vec<u8> {
    let (mut rewriter, mut out) = (Rewriter::default(), Vec::new());
    for part in sent.chunks(chunk) {
        rewriter.push(part, &mut out);
    }
    out
}

/// The requests that h2 accepts from a client that sends these bytes, by stream.
fn received(bytes: &[u8]) -> Vec<(u32, Parts)> {
    // Nothing waits: the buffer has room for all that either side sends.
    let (mut client, server) = duplex(bytes.len() + (1 << 20));
    let is_sent = client.write_all(bytes).now_or_never();
    assert!(is_sent.is_some_and(|result| result.is_ok()));
    let Some(Ok(mut connection)) = h2::server::handshake(server).now_or_never() else { return Vec::new() };
    let mut requests = Vec::new();
    while let Some(Some(Ok((request, respond)))) = connection.accept().now_or_never() {
        requests.push((respond.stream_id().into(), request.into_parts().0));
    }
    requests
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;

    const AUTHORITIES: [&[u8]; 7] = [
        b"\x01x",
        b"\x06/run/x",
        b"\x85\x62\xcb\x6a\x63\xcf",
        b"\x03a b",
        b"\x04%2Fx",
        b"\x00",
        b"\x0atcp://x:77",
    ];

    /// A field of a request. `Again` refers to a field that an earlier one has added to the table.
    #[derive(Clone, Debug)]
    enum Field {
        Authority { form: usize, value: usize },
        EmptyAuthority,
        Header { form: usize, value: u8 },
        Again(Index),
    }

    fn authority_field() -> impl Strategy<Value = Field> {
        prop_oneof![
            4 => (0..4_usize, 0..AUTHORITIES.len()).prop_map(|(form, value)| Field::Authority { form, value }),
            1 => Just(Field::EmptyAuthority),
            3 => any::<Index>().prop_map(Field::Again),
        ]
    }

    fn header() -> impl Strategy<Value = Field> {
        prop_oneof![
            (0..3_usize, any::<u8>()).prop_map(|(form, value)| Field::Header { form, value }),
            any::<Index>().prop_map(Field::Again),
        ]
    }

    /// The newest fields of the table first: `None` for an authority, else the value of `x`.
    type Table = Vec<Option<u8>>;

    /// Encodes a field, and returns the value of `x` that it has.
    fn encode(field: &Field, wants_authority: bool, table: &mut Table, block: &mut Vec<u8>) -> Option<u8> {
        match field {
            Field::Authority { form, value } => {
                block.extend([&b"\x41"[..], b"\x01", b"\x11", b"\x40\x0a:authority"][*form]);
                block.extend(AUTHORITIES[*value]);
                if matches!(form, 0 | 3) {
                    table.insert(0, None);
                }
                None
            }
            Field::EmptyAuthority => {
                block.push(0x81);
                None
            }
            Field::Header { form, value } => {
                block.extend([&b"\x40\x01x\x01"[..], b"\x00\x01x\x01", b"\x10\x01x\x01"][*form]);
                let value = b'a' + value % 26;
                block.push(value);
                if *form == 0 {
                    table.insert(0, Some(value));
                }
                Some(value)
            }
            Field::Again(index) => {
                let fields = table.iter().enumerate().filter(|(_, entry)| entry.is_none() == wants_authority);
                let fields: Vec<_> = fields.take(60).collect();
                if fields.is_empty() {
                    let instead = if wants_authority {
                        Field::EmptyAuthority
                    } else {
                        Field::Header { form: 0, value: 7 }
                    };
                    return encode(&instead, wants_authority, table, block);
                }
                let (at, entry) = *index.get(&fields);
                // 62 is the newest field of the table; 127 and more take more than one byte.
                block.push(0x80 | u8::try_from((62 + at).min(126)).unwrap());
                assert!(at < 64, "a longer form is needed");
                *entry
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Every request is accepted, whatever its authority, and its other fields are as the client means them.
        #[test]
        fn h2_decodes_rewritten_requests_unchanged(
            requests in prop::collection::vec((authority_field(), prop::collection::vec(header(), 0..4)), 1..12),
            chunk in 1..100_usize,
        ) {
            let (mut table, mut sent, mut wanted) = (Table::new(), [PREFACE, SETTINGS].concat(), Vec::new());
            for (stream, (authority, headers)) in (1_u32..).step_by(2).zip(&requests) {
                // POST, http, /
                let mut block = b"\x83\x86\x84".to_vec();
                encode(authority, true, &mut table, &mut block);
                let values: Vec<_> =
                    headers.iter().filter_map(|header| encode(header, false, &mut table, &mut block)).collect();
                let [.., a, b, c] = block.len().to_be_bytes();
                // The whole of a request: END_STREAM and END_HEADERS.
                sent.extend([&[a, b, c, 1, 5][..], &stream.to_be_bytes(), &block].concat());
                wanted.push((stream, values));
            }
            let requests = received(&rewrite(&sent, chunk)).into_iter().map(|(stream, parts)| {
                assert_eq!(parts.uri.authority().unwrap(), "w");
                assert_eq!((parts.method.as_str(), parts.uri.path()), ("POST", "/"));
                (stream, parts.headers.get_all("x").iter().map(|value| value.as_bytes()[0]).collect::<Vec<_>>())
            });
            prop_assert_eq!(requests.collect::<Vec<_>>(), wanted);
            authority(&sent[PREFACE.len() + SETTINGS.len()..]);
        }

        #[test]
        fn arbitrary_frames_reach_h2_unchanged_but_for_authorities(
            frames in prop::collection::vec((0..10_u8, any::<u8>(), 0..6_u32, prop::collection::vec(any::<u8>(), 0..40)), 0..12),
        ) {
            let frame = |(kind, flags, stream, content): &(u8, u8, u32, Vec<u8>)| {
                let [.., a, b, c] = content.len().to_be_bytes();
                [&[a, b, c, *kind, *flags][..], &stream.to_be_bytes(), content].concat()
            };
            authority(&frames.iter().flat_map(frame).collect::<Vec<_>>());
        }
    }
}

//! Whether a value is known. Only unknown values are encoded as a msgpack extension.

use rmpv::Value as Msgpack;
use serde::Serialize;

pub fn is_known(value: &impl Serialize) -> bool {
    let encoded = rmp_serde::to_vec_named(value).unwrap_or_default();
    !holds_unknown(&encoded)
}

pub fn holds_unknown(encoded: &[u8]) -> bool {
    fn unknown(value: &Msgpack) -> bool {
        match value {
            Msgpack::Ext(..) => true,
            Msgpack::Array(parts) => parts.iter().any(unknown),
            Msgpack::Map(parts) => parts.iter().any(|(_, part)| unknown(part)),
            _ => false,
        }
    }
    rmpv::decode::read_value(&mut &encoded[..]).is_ok_and(|value| unknown(&value))
}

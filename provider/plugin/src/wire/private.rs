//! The private data of an object, which Terraform stores in the state or in the plan, and sends back.
//!
//! It is never empty: a plan without a prior state, but with private data, is the second half of a replacement (see
//! [`walks`](crate::server)).

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PrivateData {
    /// Identifies the object in the private data of a plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) object: String,
    /// What the resource kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Json>,
}

impl PrivateData {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // The types have no value that JSON lacks.
        serde_json::to_vec(self).unwrap_or_else(|_| b"{}".to_vec())
    }

    /// Private data of another program, or of another version, counts as none.
    pub(crate) fn decode(data: &[u8]) -> Self {
        serde_json::from_slice(data).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_never_empty_and_unknown_data_is_ignored() {
        assert_eq!(PrivateData::default().encode(), b"{}");
        for other in [&b""[..], b"\xc0", b"null", b"[]", b"{\"object\":1}"] {
            assert!(PrivateData::decode(other).kept.is_none());
        }
        let data = PrivateData { object: "a".to_owned(), kept: Some(Json::from(1)) };
        assert_eq!(PrivateData::decode(&data.encode()).encode(), data.encode());
    }
}

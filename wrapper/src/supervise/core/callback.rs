//! The callback of a shutdown: an HTTP request after the runner has exited.
//!
//! [`Callback`] is the checked request; `daemon::callback` sends it in the background, with retries. Redirects are not followed: they
//! would send the headers, which are secrets, to a server that the client did not choose.

use std::{collections::HashMap, fmt, sync::Arc};

use http::{
    HeaderMap, Method, Uri,
    header::{HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A valid http or https request with a host. Clones share it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct Callback(Arc<Parts>);

/// A callback in the state file. It contains secrets.
#[derive(Serialize, Deserialize)]
struct Saved {
    url: String,
    method: String,
    headers: HashMap<String, String>,
}

#[derive(PartialEq, Eq)]
struct Parts {
    uri: Uri,
    method: Method,
    headers: HeaderMap,
}

/// Why a callback is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallbackError {
    #[error("the callback's `url` must be an absolute http:// or https:// URL")]
    Url,
    #[error("{0:?} is not a valid HTTP method")]
    Method(String),
    #[error("{0:?} is not a valid HTTP header name")]
    HeaderName(String),
    /// The value is usually a secret, so it is not shown.
    #[error("the value of the callback's header {0:?} contains characters that HTTP does not allow")]
    HeaderValue(String),
}

impl Callback {
    /// Checks a callback. An empty method means GET, as in upstream's wrapper.
    pub fn new(url: &str, method: &str, headers: &HashMap<String, String>) -> Result<Self, CallbackError> {
        let uri: Uri = url.parse().map_err(|_| CallbackError::Url)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(CallbackError::Url);
        }
        let method = match method {
            "" => Method::GET,
            name => {
                Method::from_bytes(name.as_bytes()).map_err(|_| CallbackError::Method(name.to_owned()))?
            }
        };
        let headers = headers
            .iter()
            .map(|(name, value)| {
                let key = HeaderName::from_bytes(name.as_bytes())
                    .map_err(|_| CallbackError::HeaderName(name.clone()))?;
                let mut value =
                    HeaderValue::from_str(value).map_err(|_| CallbackError::HeaderValue(name.clone()))?;
                value.set_sensitive(true);
                Ok((key, value))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Parts { uri, method, headers })))
    }

    /// The callbacks of a request, which has at most one. An empty URL means that it has none.
    pub fn list(
        url: &str,
        method: &str,
        headers: &HashMap<String, String>,
    ) -> Result<Vec<Self>, CallbackError> {
        if url.is_empty() { Ok(Vec::new()) } else { Ok(vec![Self::new(url, method, headers)?]) }
    }

    /// Whether its URL is the URL of `other`, or below its path.
    pub(crate) fn is_under(&self, other: &Self) -> bool {
        let location = |callback: &Self| {
            let uri = &callback.0.uri;
            let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            let host = uri.host().unwrap_or_default().to_ascii_lowercase();
            (uri.scheme_str().map(str::to_owned), host, uri.port_u16().unwrap_or(default))
        };
        let path = self.0.uri.path();
        location(self) == location(other) && path.starts_with(other.0.uri.path()) && !has_parent_segment(path)
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.0.uri
    }

    pub(crate) fn method(&self) -> &Method {
        &self.0.method
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// Its URL without possible secrets: without user information, query and headers.
    pub fn target(&self) -> Target<'_> {
        Target(&self.0.uri)
    }
}

impl TryFrom<Saved> for Callback {
    type Error = CallbackError;

    fn try_from(saved: Saved) -> Result<Self, CallbackError> {
        Self::new(&saved.url, &saved.method, &saved.headers)
    }
}

impl From<Callback> for Saved {
    fn from(callback: Callback) -> Self {
        let Parts { uri, method, headers } = &*callback.0;
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Self { url: uri.to_string(), method: method.to_string(), headers }
    }
}

/// Whether a server may resolve this path to a parent directory: some decode the path before they resolve `..`, accept `\` as `/`, or cut
/// off the text after `;`.
fn has_parent_segment(path: &str) -> bool {
    let path = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    path.split(['/', '\\']).any(|part| part.split(';').next() == Some(".."))
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.0.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Callback")
            .field("target", &format_args!("{}", self.target()))
            .field("method", &self.0.method)
            .field("headers", &headers)
            .finish()
    }
}

/// The printable part of a callback's URL.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a>(&'a Uri);

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme_str().unwrap_or_default(), self.0.host().unwrap_or_default())?;
        if let Some(port) = self.0.port_u16() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn callback_new_validates_url_method_headers() {
        let none = HashMap::new();
        assert!(Callback::new("https://ci.example/hook", "POST", &none).is_ok());
        assert_eq!(Callback::new("http://h/x", "", &none).unwrap().0.method, Method::GET);
        for url in ["", "ci.example/hook", "/hook", "ftp://h/x", "http://", "unix:///run/x"] {
            assert_eq!(Callback::new(url, "", &none), Err(CallbackError::Url), "{url}");
        }
        assert_eq!(Callback::new("http://h", "B D", &none), Err(CallbackError::Method("B D".to_owned())));
        assert!(matches!(
            Callback::new("http://h", "", &headers(&[("a b", "c")])),
            Err(CallbackError::HeaderName(_))
        ));
        let error = Callback::new("http://h", "", &headers(&[("token", "s3cret\n")])).unwrap_err();
        assert!(!error.to_string().contains("s3cret"));
    }

    #[test]
    fn callback_debug_and_target_hide_secrets() {
        let callback = Callback::new(
            "https://user:s3cret@ci.example:8443/hook?token=s3cret",
            "PUT",
            &headers(&[("Authorization", "Bearer s3cret")]),
        )
        .unwrap();
        assert_eq!(callback.target().to_string(), "https://ci.example:8443/hook");
        let debug = format!("{callback:?}");
        assert!(!debug.contains("s3cret"), "{debug}");
        assert!(debug.contains("authorization") && debug.contains("PUT"), "{debug}");
    }
}

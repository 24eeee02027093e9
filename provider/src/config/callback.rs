//! The `shutdown_callback` object. Values that the wrapper would refuse in a request are refused here.

use std::collections::BTreeMap;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value, required_text, secret_map, text},
};

use super::{object::object, text::check_set};
use crate::{client::ShutdownCallback, explain::values};

/// The method of a callback, unless `shutdown_callback` sets another.
const CALLBACK_METHOD: &str = "POST";

object! {
    /// `shutdown_callback = { url, method, headers }`. Has no `Debug`: the headers can contain a token.
    pub(crate) struct CallbackArgs {
        pub(crate) url: Value<String> = required_text =>
            "URL that the wrapper sends the request to. grit-wrapper refuses a loopback, link-local or metadata address unless its flag \
             `--allow-callback` names the URL.", check_url;
        pub(crate) method: Value<String> = text =>
            format!("Any HTTP method. Default `{CALLBACK_METHOD}`."), check_method;
        pub(crate) headers: Value<BTreeMap<String, Value<String>>> = secret_map =>
            "HTTP headers. **Resources store these headers in the state** (actions do not).", check_headers;
    }
}

impl CallbackArgs {
    pub(super) fn callback(&self) -> Option<ShutdownCallback> {
        let headers = self.headers.iter().flatten();
        Some(ShutdownCallback {
            url: self.url.as_ref_option()?.clone(),
            method: self.method.as_ref_option().map_or(CALLBACK_METHOD, String::as_str).to_owned(),
            headers: headers
                .filter_map(|(name, value)| Some((name.clone(), value.as_ref_option()?.clone())))
                .collect(),
        })
    }
}

fn check_url(url: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    match url {
        Value::Value(url) if !is_http_url(url) => problems.add(values::url(path.clone())),
        url => check_set(url, path, problems),
    }
}

fn check_method(method: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(method) = method
        && http::Method::from_bytes(method.as_bytes()).is_err()
    {
        problems.add(values::http_method(path.clone(), method));
    }
}

fn check_headers(
    headers: &Value<BTreeMap<String, Value<String>>>,
    path: &AttributePath,
    problems: &mut Problems,
) {
    for (name, value) in headers.iter().flatten() {
        let path = &path.clone().key(name.clone());
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            problems.add(values::http_header_name(path.clone(), name));
        }
        match value {
            Value::Value(value) if http::HeaderValue::from_str(value).is_err() => {
                problems.add(values::http_header_value(path.clone()));
            }
            value => check_set(value, path, problems),
        }
    }
}

fn is_http_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

//! One request to GitLab over HTTP/1.1.

use std::sync::Arc;

use http::{
    HeaderValue, Method, Request,
    header::{ACCEPT, CONTENT_LENGTH, PROXY_AUTHORIZATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::task::spawn_blocking;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::{
    answer::{Answer, Body},
    error::GitlabError,
    proxy::{Proxy, Way},
};

/// Ten times larger than a page of jobs.
const MAX_RESPONSE: usize = 8 << 20;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("terraform-provider-grit/", env!("CARGO_PKG_VERSION")));

/// A client without redirects.
pub(super) struct Https {
    client: Client<HttpsConnector<Way>, Empty<&'static [u8]>>,
    proxy_authorization: Option<HeaderValue>,
}

impl Https {
    pub(super) async fn new(
        uses_tls: bool,
        ca_certificate: Option<&str>,
        proxy: Option<&Proxy>,
    ) -> Result<Self, GitlabError> {
        if proxy.is_some_and(|proxy| !proxy.is_supported()) {
            return Err(GitlabError::UnsupportedProxy);
        }
        let mut authorities = RootCertStore::empty();
        if uses_tls || proxy.is_some_and(Proxy::uses_tls) {
            // Reads files, which may be slow.
            let found = spawn_blocking(rustls_native_certs::load_native_certs).await;
            let found = found.map_err(|_| GitlabError::NoAuthorities)?;
            let (mut added, _unusable) = authorities.add_parsable_certificates(found.certs);
            for certificate in certificates(ca_certificate.unwrap_or_default())? {
                authorities.add(certificate).map_err(|error| GitlabError::Tls(error.to_string()))?;
                added += 1;
            }
            if added == 0 {
                return Err(GitlabError::NoAuthorities);
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| GitlabError::Tls(error.to_string()))?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        let connector =
            || HttpsConnectorBuilder::new().with_tls_config(config.clone()).https_or_http().enable_http1();
        let way = Way::new(proxy.cloned(), connector().build());
        let client = Client::builder(TokioExecutor::new()).build(connector().wrap_connector(way));
        Ok(Self { client, proxy_authorization: proxy.and_then(Proxy::authorization).cloned() })
    }

    /// Sends one request. Dropping the future cancels it.
    pub(super) async fn call(
        &self,
        method: Method,
        url: &str,
        token: &HeaderValue,
        body: Body,
    ) -> Result<Answer, GitlabError> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header("private-token", token)
            .header(CONTENT_LENGTH, 0)
            .body(Empty::new())
            .map_err(|error| GitlabError::request(&error))?;
        if let Some(authorization) = &self.proxy_authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let answer = self.client.request(request).await.map_err(|error| GitlabError::request(&error))?;
        let next_page = answer.headers().get("x-next-page");
        let next_page = next_page.map(|page| String::from_utf8_lossy(page.as_bytes()).into_owned());
        let has_total = answer.headers().contains_key("x-total");
        let status = answer.status();
        let (mut frames, mut read) = (answer.into_body(), Vec::new());
        while let Some(frame) = frames.frame().await {
            let frame = frame.map_err(|error| GitlabError::request(&error))?;
            read.extend(frame.into_data().unwrap_or_default());
            if read.len() > MAX_RESPONSE {
                return Err(GitlabError::TooLarge(MAX_RESPONSE));
            }
            // Without the rest, the connection is closed.
            if body == Body::Start && !read.is_empty() {
                break;
            }
        }
        Ok(Answer { status, next_page, has_total, body: read })
    }
}

/// The certificates of a text in PEM format. An error shows no part of the text.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, GitlabError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.map_err(|_| GitlabError::Tls("a certificate is not valid PEM".to_owned()))
}

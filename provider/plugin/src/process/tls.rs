//! TLS with one client: the certificate that Terraform announced.
//!
//! A web-PKI verifier cannot be used: go-plugin's certificate is a self-signed CA that is used as an end entity, which webpki rejects, and
//! its key uses P-521, which ring does not support. Therefore the certificate is compared byte by byte, and the `p521` crate verifies the
//! client's signature.

use std::{sync::Arc, time::Duration};

use p521::{
    ecdsa::{Signature, VerifyingKey, signature::Verifier},
    pkcs8::DecodePublicKey,
};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use thiserror::Error;
use time::OffsetDateTime;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
        client::danger::HandshakeSignatureValid,
        crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem, pem::PemObject},
        server::danger::{ClientCertVerified, ClientCertVerifier},
        version::TLS13,
    },
};

/// Longer than any run of Terraform.
const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(30 * 24 * 3600);

const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The server certificate, and an acceptor for one client certificate.
pub(super) struct Identity {
    pub(super) acceptor: TlsAcceptor,
    /// The server certificate, for the handshake line.
    pub(super) certificate: Vec<u8>,
}

#[derive(Debug, Error)]
pub(super) enum TlsError {
    #[error("PLUGIN_CLIENT_CERT does not contain a PEM certificate ({0:?})")]
    ClientCertificate(pem::Error),
    #[error("cannot create a certificate")]
    OwnCertificate(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
}

impl Identity {
    /// Creates a server certificate. Accepts only `client_certificate` (PEM).
    pub(super) fn new(client_certificate: &str) -> Result<Self, TlsError> {
        let client = CertificateDer::from_pem_slice(client_certificate.as_bytes())
            .map_err(TlsError::ClientCertificate)?;
        let key = KeyPair::generate()?;
        let own = own_certificate(&key)?;
        // Explicit: rustls has no default if two backends are compiled in.
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(Pinned { client, provider }))
            .with_single_cert(vec![own.clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate: own.to_vec() })
    }
}

/// The certificate that Terraform trusts as a root, with the name that it expects.
fn own_certificate(key: &KeyPair) -> Result<CertificateDer<'static>, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".into()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + CERTIFICATE_VALIDITY;
    Ok(params.self_signed(key)?.der().clone())
}

#[derive(Debug)]
struct Pinned {
    client: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if *end_entity == self.client {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // Not called: only TLS 1.3 is offered.
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if signature.scheme == SignatureScheme::ECDSA_NISTP521_SHA512 {
            return verify_p521(message, certificate, signature.signature())
                .map(|()| HandshakeSignatureValid::assertion())
                .ok_or_else(|| CertificateError::BadSignature.into());
        }
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

/// `Some` if the signature is valid.
fn verify_p521(message: &[u8], certificate: &CertificateDer<'_>, signature: &[u8]) -> Option<()> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let key = p521::PublicKey::from_public_key_der(&certificate.subject_public_key_info()).ok()?;
    let signature = Signature::from_der(signature).ok()?;
    VerifyingKey::from(&key).verify(message, &signature).ok()
}

#[cfg(test)]
mod tests {
    use p521::ecdsa::{DerSignature, SigningKey, signature::Signer};

    use super::*;

    /// As Terraform makes them: P-521, self-signed, a CA. Its key is [`key`]`(7)`, written down because it protects nothing.
    const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIICBzCCAWigAwIBAgIUWq5b3LQG36ZsJ5Y8NqcVQA+YKv0wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMDExNDYyM1oYDzIxMjYxMDI3
MTE0NjIzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwgZswEAYHKoZIzj0CAQYFK4EE
ACMDgYYABADoha5ADJZ07sqM8x9oZBmjMTjbSq6KIAZ9YslNYAuypI2YmqlflhXU
5brNwETheYAwcvjxM+EV0l6WxVbkab2K0wAOB68fecmbWsdaSfEgzX6MyZXQCSnf
DTfZQ9gbVaMG1sjA7t+HMgQfA9BzYlrvgfWewWWmqPaobbfSqnJTbTybt6NTMFEw
HQYDVR0OBBYEFLOCqyGVEXJP+TKzULDCCJlZaWqEMB8GA1UdIwQYMBaAFLOCqyGV
EXJP+TKzULDCCJlZaWqEMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDgYwA
MIGIAkIBz/M+DWg+PF0n5o5i8OYMQFP1ugJ4zxZJ7d5FJAmfNw8opUuaWpi4tKpI
gskEtJLMZ4OWQGIcxezXtE6wkbiVYSACQgCg/rhMuldfza4YZha75AFxVPxIpa8O
CEkv60wNBRhdwtdaC009a7o7ogyc6pMzPsk58ZM40e34gId5bGnKOxn9uA==
-----END CERTIFICATE-----";

    fn certificate() -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()
    }

    fn key(filling: u8) -> SigningKey {
        let mut scalar = [filling; 66];
        scalar[0] = 0;
        SigningKey::from_slice(&scalar).unwrap()
    }

    fn sign(key: &SigningKey, message: &[u8]) -> Vec<u8> {
        let signature: DerSignature = key.sign(message);
        signature.as_bytes().to_vec()
    }

    #[test]
    fn p521_signature_needs_matching_key_and_message() {
        let verify = |message: &[u8], signature: &[u8]| verify_p521(message, &certificate(), signature);
        let good = sign(&key(7), b"transcript");
        assert_eq!(verify(b"transcript", &good), Some(()));
        assert_eq!(verify(b"another transcript", &good), None);
        assert_eq!(verify(b"transcript", &sign(&key(8), b"transcript")), None);
        assert_eq!(verify(b"transcript", &good[..good.len() - 1]), None);
        assert_eq!(verify(b"transcript", b""), None);
    }

    #[test]
    fn p521_signature_needs_p521_certificate() {
        let other = own_certificate(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(verify_p521(b"transcript", &other, &sign(&key(7), b"transcript")), None);
    }

    #[test]
    fn invalid_client_certificate_is_rejected() {
        assert!(matches!(Identity::new("nonsense"), Err(TlsError::ClientCertificate(_))));
    }
}

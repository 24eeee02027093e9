//! A client of the plugin protocol instead of Terraform: a valid one, and clients that must be rejected.

use std::sync::Arc;

use anyhow::Context as _;
use grit_proto::{
    goplugin::grpc_controller_client::GrpcControllerClient, tfplugin6::provider_client::ProviderClient,
};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
    },
};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::Handshake;

/// Terraform's message size limit.
const LARGEST_MESSAGE: usize = i32::MAX as usize;

/// A certificate and its key, as go-plugin's client creates one for each plugin.
pub struct ClientIdentity {
    /// For PLUGIN_CLIENT_CERT.
    pub pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

/// An open connection.
#[derive(Debug, Clone)]
pub struct Client {
    /// For services without a field here.
    pub channel: Channel,
    pub provider: ProviderClient<Channel>,
    pub controller: GrpcControllerClient<Channel>,
}

/// The error of a failed connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("cannot connect or greet: {0:?}")]
    Transport(#[from] tonic::transport::Error),
    #[error(transparent)]
    Setup(#[from] anyhow::Error),
}

impl ClientIdentity {
    /// Creates an identity.
    ///
    /// # Errors
    ///
    /// If the key cannot be created.
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["localhost".into()])?.self_signed(&key)?;
        Ok(Self { pem: certificate.pem(), certificate: certificate.der().clone(), key: key.serialize_der() })
    }

    /// Presents another client's certificate without having its key.
    #[must_use]
    pub fn with_certificate_of(self, other: &Self) -> Self {
        Self { pem: other.pem.clone(), certificate: other.certificate.clone(), key: self.key }
    }
}

impl Client {
    /// Connects as Terraform does: it trusts the certificate of the handshake, and presents `identity`.
    ///
    /// # Errors
    ///
    /// If the provider rejects the client.
    pub async fn connect(
        handshake: &Handshake,
        identity: Option<&ClientIdentity>,
    ) -> Result<Self, ConnectError> {
        let trust = handshake.certificate.clone().context("the provider has no certificate")?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .context("TLS versions")?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting { certificate: trust, provider }));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(
                    vec![identity.certificate.clone()],
                    PrivateKeyDer::Pkcs8(identity.key.clone().into()),
                )
                .context("the client's certificate")?,
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::open(handshake, Some(TlsConnector::from(Arc::new(config)))).await
    }

    /// Connects without TLS.
    ///
    /// # Errors
    ///
    /// If the provider rejects the client.
    pub async fn connect_plain(handshake: &Handshake) -> Result<Self, ConnectError> {
        Self::open(handshake, None).await
    }

    async fn open(handshake: &Handshake, tls: Option<TlsConnector>) -> Result<Self, ConnectError> {
        let socket = handshake.socket.clone();
        let connector = service_fn(move |_: Uri| {
            let (socket, tls) = (socket.clone(), tls.clone());
            async move {
                let stream = UnixStream::connect(socket).await?;
                let stream: Box<dyn Stream> = match tls {
                    None => Box::new(stream),
                    Some(tls) => Box::new(
                        tls.connect(
                            ServerName::try_from("localhost").map_err(std::io::Error::other)?,
                            stream,
                        )
                        .await?,
                    ),
                };
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await?;
        Ok(Self {
            provider: ProviderClient::new(channel.clone())
                .max_decoding_message_size(LARGEST_MESSAGE)
                .max_encoding_message_size(LARGEST_MESSAGE),
            controller: GrpcControllerClient::new(channel.clone()),
            channel,
        })
    }
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Stream for T {}

/// Trusts exactly the certificate of the handshake. Go uses it as the only root, with the same effect.
#[derive(Debug)]
struct Trusting {
    certificate: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if end_entity.as_ref() == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::CertificateError::UnknownIssuer.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
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
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

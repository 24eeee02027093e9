//! Signs the login with a certificate, by the private key of the certificate.

use russh::{
    SendError, Signer,
    keys::{
        HashAlg,
        agent::AgentIdentity,
        ssh_key::{Signature, private::KeypairData},
    },
};

use super::private_key::PrivateKey;

/// Signs with a private key that the provider has read.
pub(super) struct KeySigner<'a>(pub(super) &'a PrivateKey);

/// The session ended, or the key cannot sign.
pub(super) struct SigningError(pub(super) russh::Error);

impl From<SendError> for SigningError {
    fn from(_: SendError) -> Self {
        Self(russh::Error::SendError)
    }
}

impl Signer for KeySigner<'_> {
    type Error = SigningError;

    /// The request, followed by its signature.
    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        hash: Option<HashAlg>,
        mut request: Vec<u8>,
    ) -> Result<Vec<u8>, SigningError> {
        let failed = |error| SigningError(russh::Error::SshKey(error));
        let signature = self.sign(hash, &request).and_then(Vec::try_from).map_err(failed)?;
        request.extend((signature.len() as u32).to_be_bytes());
        request.extend(signature);
        Ok(request)
    }
}

impl KeySigner<'_> {
    fn sign(&self, hash: Option<HashAlg>, request: &[u8]) -> Result<Signature, russh::keys::ssh_key::Error> {
        use signature::Signer as _;
        Ok(match self.0.0.key_data() {
            KeypairData::Rsa(key) => (key, hash).try_sign(request)?,
            key => key.try_sign(request)?,
        })
    }
}

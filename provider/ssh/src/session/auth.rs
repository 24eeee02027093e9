//! Authentication: each credential is tried once.

use std::sync::Arc;

use russh::{
    client::{AuthResult, Handle, KeyboardInteractiveAuthResponse},
    keys::{Certificate, HashAlg, PrivateKeyWithHashAlg, agent::AgentIdentity},
};

use super::{
    agent::{Agent, Signing, Waiting},
    failure,
    handler::{Handler, Observed, REASON_WAIT},
    private_key::{self, CertifiedKey, PrivateKey},
    signer::KeySigner,
    user_certificate,
};
use crate::{
    error::{Cause, OfferedCertificate},
    limits::{Deadline, Limits},
};

/// sshd ends a session at the sixth rejected key, and counts all of them against the address of the client.
const MAX_KEYS_OFFERED: usize = 5;

const KEYBOARD_INTERACTIVE: &str = "keyboard-interactive";
/// PAM sends one request for each of its modules that has a message.
const MAX_REQUESTS: usize = 10;

#[derive(Debug, Clone)]
pub(crate) enum Credential {
    Key(PrivateKey),
    CertifiedKey(CertifiedKey),
    Agent(Agent),
}

/// Logs in with the first credential that the server accepts. Returns the id of its certificate if that does not permit forwarding.
pub(super) async fn authenticate(
    handle: &mut Handle<Handler>,
    observed: &Observed,
    username: &str,
    credentials: &[Credential],
    limits: &Limits,
    deadline: Deadline,
) -> Result<Option<String>, Cause> {
    let limit = deadline.cap(limits.auth);
    let waiting = Waiting::default();
    let attempts = Attempts {
        handle,
        observed,
        username,
        limits,
        waiting: &waiting,
        offered: Vec::new(),
        not_offered: 0,
        certificates: Vec::new(),
        without_forwarding: None,
        remaining: None,
    };
    let done = tokio::time::timeout(limit, Box::pin(attempts.all(credentials))).await;
    done.unwrap_or_else(|_| match waiting.agent() {
        Some(agent) => Err(agent.no_response(limit)),
        None => Err(Cause::TimedOut { limit }),
    })
}

struct Attempts<'a> {
    handle: &'a mut Handle<Handler>,
    observed: &'a Observed,
    username: &'a str,
    limits: &'a Limits,
    waiting: &'a Waiting,
    offered: Vec<String>,
    not_offered: usize,
    certificates: Vec<OfferedCertificate>,
    /// Of the last credential: the id of a certificate without the permission to forward.
    without_forwarding: Option<String>,
    remaining: Option<Vec<String>>,
}

impl Attempts<'_> {
    async fn all(mut self, credentials: &[Credential]) -> Result<Option<String>, Cause> {
        for credential in credentials {
            let accepted = match credential {
                Credential::Key(key) => self.key(key).await?,
                Credential::CertifiedKey(certified) => self.certified(certified).await?,
                Credential::Agent(agent) => self.agent(agent).await?,
            };
            if accepted {
                return Ok(self.without_forwarding);
            }
        }
        let remaining = self.remaining.take().unwrap_or_default();
        Err(self.refused(remaining))
    }

    fn refused(&self, remaining: Vec<String>) -> Cause {
        let (offered, certificates) = (self.offered.clone(), self.certificates.clone());
        Cause::AuthRefused { offered, not_offered: self.not_offered, certificates, remaining }
    }

    async fn key(&mut self, key: &PrivateKey) -> Result<bool, Cause> {
        if self.is_over() {
            return Ok(false);
        }
        let hash = self.rsa_hash(key.0.algorithm().is_rsa()).await?;
        let signer = PrivateKeyWithHashAlg::new(Arc::clone(&key.0), hash);
        self.offer(key.describe(), None);
        let result = self.handle.authenticate_publickey(self.username, signer).await;
        self.conclude(result).await
    }

    async fn certified(&mut self, certified: &CertifiedKey) -> Result<bool, Cause> {
        if self.is_over() {
            return Ok(false);
        }
        let CertifiedKey { key, certificate } = certified;
        let hash = self.rsa_hash(key.0.algorithm().is_rsa()).await?;
        self.offer(key.describe(), Some(certificate));
        // `authenticate_openssh_cert` signs with SHA-1 if the key is an RSA key.
        let (certificate, signer) = (certificate.as_ref().clone(), &mut KeySigner(key));
        let result =
            self.handle.authenticate_certificate_with(self.username, certificate, hash, signer).await;
        self.conclude(result.map_err(|error| error.0)).await
    }

    async fn agent(&mut self, agent: &Agent) -> Result<bool, Cause> {
        let mut opened = self.waiting.during(agent, agent.open()).await?;
        let mut refused = None;
        let mut identities = opened.identities.into_iter();
        while let Some(identity) = identities.next() {
            if self.is_over() {
                self.not_offered += 1 + identities.len();
                return Ok(false);
            }
            let key = identity.public_key().into_owned();
            let described = private_key::describe(&key);
            let hash = self.rsa_hash(key.algorithm().is_rsa()).await?;
            let signer = &mut Signing { client: &mut opened.client, agent, waiting: self.waiting };
            let result = match identity {
                AgentIdentity::PublicKey { .. } => {
                    self.offer(described, None);
                    self.handle.authenticate_publickey_with(self.username, key, hash, signer).await
                }
                AgentIdentity::Certificate { certificate, .. } => {
                    self.offer(described, Some(&certificate));
                    self.handle.authenticate_certificate_with(self.username, certificate, hash, signer).await
                }
            };
            let accepted = match result {
                Ok(result) => self.conclude(Ok(result)).await?,
                Err(russh::AgentAuthError::Send(_)) => self.conclude(Err(russh::Error::SendError)).await?,
                // For example a key that needs a confirmation. As in OpenSSH's client, the next key may work.
                Err(russh::AgentAuthError::Key(error)) => {
                    refused = Some(error);
                    continue;
                }
            };
            if accepted {
                return Ok(true);
            }
        }
        refused.map_or(Ok(false), |error| Err(agent.cannot(format!("signing failed: {error}"))))
    }

    /// Keeps what is about to be offered.
    fn offer(&mut self, key: String, certificate: Option<&Certificate>) {
        self.without_forwarding = certificate.and_then(user_certificate::without_forwarding);
        self.offered.push(match certificate {
            Some(certificate) => format!("certificate {:?} of {key}", certificate.key_id()),
            None => key,
        });
        self.certificates.extend(certificate.map(|it| user_certificate::report(it, self.username)));
    }

    /// Whether the server would reject further keys, or end the session.
    fn is_over(&self) -> bool {
        self.offered.len() >= MAX_KEYS_OFFERED
            || self.remaining.as_ref().is_some_and(|methods| !methods.iter().any(|it| it == "publickey"))
    }

    /// `None` means SHA-1 for an RSA key, which modern servers reject.
    async fn rsa_hash(&self, is_rsa: bool) -> Result<Option<HashAlg>, Cause> {
        if !is_rsa {
            return Ok(None);
        }
        match self.handle.best_supported_rsa_hash().await {
            Ok(best) => Ok(best.flatten().or(Some(HashAlg::Sha256))),
            Err(error) => Err(self.lost(&error).await),
        }
    }

    /// Whether the server accepted the credential. russh reports a lost connection as a rejection without remaining methods.
    async fn conclude(&mut self, result: Result<AuthResult, russh::Error>) -> Result<bool, Cause> {
        let (methods, partial) = match result {
            Ok(AuthResult::Success) => return Ok(true),
            Ok(AuthResult::Failure { remaining_methods, partial_success }) => {
                (remaining_methods, partial_success)
            }
            Err(error) => return Err(self.lost(&error).await),
        };
        let methods: Vec<String> = methods.iter().map(|method| <&str>::from(method).to_owned()).collect();
        if methods.is_empty()
            && tokio::time::timeout(REASON_WAIT, self.observed.ended().cancelled()).await.is_ok()
        {
            return Err(self.end_cause());
        }
        if partial {
            // The key was accepted, but the server also requires a password or a code.
            if methods.iter().any(|method| method == KEYBOARD_INTERACTIVE) && self.asks_nothing().await? {
                return Ok(true);
            }
            let wanted = methods.join(", ");
            return Err(Cause::MoreFactors { wanted });
        }
        self.remaining = Some(methods);
        Ok(false)
    }

    /// Whether the server accepts the user after requests without a question, as `ssh` answers them: for example PAM, which only checks an account.
    async fn asks_nothing(&mut self) -> Result<bool, Cause> {
        let none: Option<String> = None;
        let mut answer = self.handle.authenticate_keyboard_interactive_start(self.username, none).await;
        for _ in 0..MAX_REQUESTS {
            match answer {
                Ok(KeyboardInteractiveAuthResponse::Success) => return Ok(true),
                Ok(KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. }) if prompts.is_empty() => {
                    answer = self.handle.authenticate_keyboard_interactive_respond(Vec::new()).await;
                }
                Ok(_) => return Ok(false),
                Err(error) => return Err(self.lost(&error).await),
            }
        }
        Ok(false)
    }

    async fn lost(&self, error: &russh::Error) -> Cause {
        match tokio::time::timeout(REASON_WAIT, self.observed.ended().cancelled()).await {
            Ok(()) => self.end_cause(),
            Err(_) => failure::of_session(error, self.limits),
        }
    }

    fn end_cause(&self) -> Cause {
        match self.observed.end_cause(self.limits) {
            Cause::AuthRefused { remaining, .. } => self.refused(remaining),
            cause => cause,
        }
    }
}

//! Events that russh reports only to its handler.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use russh::{
    Channel, ChannelId, ChannelOpenFailure,
    client::{self, ChannelOpenHandle, DisconnectReason},
    keys::{PublicKey, PublicKeyOrCertificate},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{failure, host_certificate, nagle};
use crate::{
    address::HostPort,
    error::Cause,
    host_text::{MAX_TEXT, shortened},
    limits::Limits,
    trust::HostTrust,
    trust::refusal::HostKeyRefusal,
};

/// The time in which the handler reports an event after the failure of the call that it belongs to.
pub(super) const REASON_WAIT: Duration = Duration::from_millis(500);

/// The number of channels that a server may try to open; the last one ends the session. The provider requests no forwarding, so it must refuse
/// all of them (RFC 4254, sections 6.1, 6.3.2 and 7.2). A few do no harm, so that a faulty server does not end a drain of hours.
const MAX_SERVER_CHANNELS: usize = 8;

/// Shared between a session and its handler.
#[derive(Debug, Default)]
pub(super) struct Observed {
    seen: Mutex<Seen>,
    refused: Notify,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Seen {
    refusals: VecDeque<String>,
    end: Option<End>,
    banner: Option<String>,
}

#[derive(Debug)]
enum End {
    Disconnected(String),
    Failed(russh::Error),
    ServerOpensChannels(usize),
}

impl Observed {
    /// Cancelled when the session has ended.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Why the session ended, after [`Self::ended`] was cancelled.
    pub(super) fn end_cause(&self, limits: &Limits) -> Cause {
        match &self.seen.lock().end {
            Some(End::Disconnected(message)) => failure::of_disconnect(message),
            Some(End::Failed(error)) => failure::of_session(error, limits),
            Some(End::ServerOpensChannels(count)) => Cause::ServerOpensChannels(*count),
            None => Cause::Lost("the server closed the session without a reason".to_owned()),
        }
    }

    /// The text of the oldest unread channel refusal. It may arrive a moment after the refusal.
    pub(super) async fn refusal_text(&self, wait: Duration) -> Option<String> {
        let taken = async {
            loop {
                let refused = self.refused.notified();
                if let Some(text) = self.seen.lock().refusals.pop_front() {
                    return text;
                }
                refused.await;
            }
        };
        tokio::time::timeout(wait, taken).await.ok()
    }

    /// The last text that the server sent during the login.
    pub(super) fn banner(&self) -> Option<String> {
        self.seen.lock().banner.clone()
    }
}

/// The handler of one session. russh's task owns it.
pub(super) struct Handler {
    observed: Arc<Observed>,
    trust: HostTrust,
    host: HostPort,
    /// Whether a jump host or a command acknowledges the server's TCP segments. See [`nagle`].
    relayed: bool,
    /// The number of channels that the server has tried to open.
    server_channels: usize,
}

impl Handler {
    pub(super) fn new(observed: Arc<Observed>, trust: HostTrust, host: HostPort, relayed: bool) -> Self {
        Self { observed, trust, host, relayed, server_channels: 0 }
    }

    /// Refuses a channel that the server opens, and ends the session if it opens more and more of them.
    async fn refuse_channel(&mut self, reply: ChannelOpenHandle) -> Result<(), HandlerError> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        self.server_channels += 1;
        if self.server_channels < MAX_SERVER_CHANNELS {
            return Ok(());
        }
        Err(HandlerError::ServerOpensChannels(self.server_channels))
    }
}

/// Also runs when russh's task panics, or when its runtime is dropped.
impl Drop for Handler {
    fn drop(&mut self) {
        self.observed.ended.cancel();
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HandlerError {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error(transparent)]
    HostKey(Box<HostKeyRefusal>),
    /// The number of channels.
    #[error("the server opened channels that were not requested")]
    ServerOpensChannels(usize),
}

/// russh accepts these channels by default. `$argument`: what the server sends besides the type.
macro_rules! refuse_server_channels {
    ($($method:ident($($argument:ty),*);)*) => {$(
        async fn $method(
            &mut self,
            _: Channel<client::Msg>,
            $(_: $argument,)*
            reply: ChannelOpenHandle,
            _: &mut client::Session,
        ) -> Result<(), HandlerError> {
            self.refuse_channel(reply).await
        }
    )*};
}

impl client::Handler for Handler {
    type Error = HandlerError;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, HandlerError> {
        let key = host_certificate::host_key(&shown.public_key())?;
        let verified = match shown.certificate() {
            Some(shown) => host_certificate::verify(shown, &key, &self.trust, &self.host),
            None => self.trust.verify(&key),
        };
        verified.map_err(HandlerError::HostKey)?;
        Ok(true)
    }

    async fn auth_banner(&mut self, text: &str, _: &mut client::Session) -> Result<(), HandlerError> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            self.observed.seen.lock().banner = Some(shortened(text, MAX_TEXT));
        }
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _: ChannelId,
        _: ChannelOpenFailure,
        text: &str,
        _: &str,
        _: &mut client::Session,
    ) -> Result<(), HandlerError> {
        let mut seen = self.observed.seen.lock();
        if seen.refusals.len() >= 64 {
            seen.refusals.pop_front(); // nobody asked for them
        }
        seen.refusals.push_back(shortened(text.to_owned(), MAX_TEXT));
        drop(seen);
        self.observed.refused.notify_waiters();
        Ok(())
    }

    refuse_server_channels! {
        server_channel_open_session();
        server_channel_open_direct_tcpip(&str, u32, &str, u32);
        server_channel_open_direct_streamlocal(&str);
        server_channel_open_forwarded_tcpip(&str, u32, &str, u32);
        server_channel_open_forwarded_streamlocal(&str);
        server_channel_open_agent_forward();
        server_channel_open_x11(&str, u32);
        server_channel_open_unknown();
    }

    /// So that [`client::Handler::server_channel_open_unknown`] counts and refuses it.
    async fn should_accept_unknown_server_channel(&mut self, _: ChannelId, _: &str) -> bool {
        true
    }

    /// sshd's first message after the login. One for each use of authorized_keys, which russh does not report, and the response to the opening
    /// of the channel follow it. Where they are held back by then, the acknowledgement releases them together.
    async fn openssh_ext_host_keys_announced(
        &mut self,
        _: Vec<PublicKey>,
        session: &mut client::Session,
    ) -> Result<(), HandlerError> {
        if self.relayed {
            tokio::time::sleep(nagle::FOLLOWING).await;
            nagle::prompt_acknowledgement(session)?;
        }
        Ok(())
    }

    async fn data(
        &mut self,
        _: ChannelId,
        _: &[u8],
        session: &mut client::Session,
    ) -> Result<(), HandlerError> {
        if self.relayed {
            nagle::prompt_acknowledgement(session)?;
        }
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<HandlerError>) -> Result<(), HandlerError> {
        let end = match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                End::Disconnected(shortened(info.message, MAX_TEXT))
            }
            DisconnectReason::Error(HandlerError::Ssh(error)) => End::Failed(error),
            // Another host key in a rekey.
            DisconnectReason::Error(HandlerError::HostKey(refusal)) => End::Disconnected(refusal.to_string()),
            DisconnectReason::Error(HandlerError::ServerOpensChannels(count)) => {
                End::ServerOpensChannels(count)
            }
        };
        self.observed.seen.lock().end = Some(end);
        self.observed.ended.cancel();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use russh::{Disconnect, client::Handler as _};

    use super::*;

    #[tokio::test]
    async fn disconnect_message_is_shortened() {
        let observed = Arc::new(Observed::default());
        let (trust, host) = (HostTrust::default(), "h".parse().unwrap());
        let mut handler = Handler::new(Arc::clone(&observed), trust, host, false);
        let reason = client::RemoteDisconnectInfo {
            reason_code: Disconnect::ByApplication,
            message: "x".repeat(200_000),
            lang_tag: String::new(),
        };
        handler.disconnected(DisconnectReason::ReceivedDisconnect(reason)).await.unwrap();
        let text = observed.end_cause(&Limits::new(None, None, None)).to_string();
        assert!(text.len() < MAX_TEXT + 100, "{}", text.len());
    }
}

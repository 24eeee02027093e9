//! Channels that the server opens to its client, although the client requested no forwarding.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use russh::{Error, server};

/// Opens that wait for their response at the same time.
const AT_ONCE: usize = 64;

/// The type of the channels.
#[derive(Debug, Clone, Copy)]
pub enum ChannelKind {
    Session,
    X11,
    Agent,
    DirectTcpip,
    DirectStreamlocal,
    ForwardedTcpip,
    ForwardedStreamlocal,
}

impl ChannelKind {
    pub const ALL: [Self; 7] = [
        Self::Session,
        Self::X11,
        Self::Agent,
        Self::DirectTcpip,
        Self::DirectStreamlocal,
        Self::ForwardedTcpip,
        Self::ForwardedStreamlocal,
    ];
}

/// The channels that a server opens in its sessions.
#[derive(Debug)]
pub struct Opens {
    kind: ChannelKind,
    left: AtomicUsize,
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

impl Opens {
    /// At most `count` channels.
    pub fn new(kind: ChannelKind, count: usize) -> Arc<Self> {
        let (accepted, refused) = Default::default();
        Arc::new(Self { kind, left: AtomicUsize::new(count), accepted, refused })
    }

    /// The channels that the client has accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The channels that the client has refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn start(self: &Arc<Self>, session: &server::Handle) {
        for _ in 0..AT_ONCE {
            let (opens, session) = (Arc::clone(self), session.clone());
            tokio::spawn(async move { opens.run(&session).await });
        }
    }

    async fn run(&self, session: &server::Handle) {
        // A dropped channel would be closed.
        let mut open = Vec::new();
        while self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            let opened = match self.kind {
                ChannelKind::Session => session.channel_open_session().await,
                ChannelKind::X11 => session.channel_open_x11("127.0.0.1", 1).await,
                ChannelKind::Agent => session.channel_open_agent().await,
                ChannelKind::DirectTcpip => session.channel_open_direct_tcpip("h", 1, "127.0.0.1", 1).await,
                ChannelKind::DirectStreamlocal => session.channel_open_direct_streamlocal("/s").await,
                ChannelKind::ForwardedTcpip => {
                    session.channel_open_forwarded_tcpip("h", 1, "127.0.0.1", 1).await
                }
                ChannelKind::ForwardedStreamlocal => session.channel_open_forwarded_streamlocal("/s").await,
            };
            match opened {
                Ok(channel) => {
                    self.accepted.fetch_add(1, Ordering::Relaxed);
                    open.push(channel);
                }
                Err(Error::ChannelOpenFailure(_)) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => return,
            }
        }
    }
}

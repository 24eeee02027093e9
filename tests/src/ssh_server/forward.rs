//! Forwards the bytes of a channel to a socket and back.

use russh::{
    Channel, ChannelOpenFailure,
    server::{ChannelOpenHandle, Msg},
};
use std::path::PathBuf;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

pub(super) fn to_tcp(channel: Channel<Msg>, reply: ChannelOpenHandle, host: String, port: u16) {
    tokio::spawn(async move { carry(channel, reply, TcpStream::connect((host, port)).await).await });
}

pub(super) fn to_unix(channel: Channel<Msg>, reply: ChannelOpenHandle, path: PathBuf) {
    tokio::spawn(async move { carry(channel, reply, UnixStream::connect(path).await).await });
}

async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    channel: Channel<Msg>,
    reply: ChannelOpenHandle,
    socket: std::io::Result<S>,
) {
    match socket {
        Ok(mut socket) => {
            reply.accept().await;
            let mut channel = channel.into_stream();
            if let Err(error) = tokio::io::copy_bidirectional(&mut channel, &mut socket).await {
                tracing::debug!(%error, "a forwarded connection broke");
            }
        }
        Err(error) => {
            tracing::debug!(%error, "nothing to forward to");
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
    }
}

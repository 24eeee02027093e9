//! Reads the state of the process from a supervisor.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use grit_proto::runner_wrapper::{CheckStatusRequest, process_wrapper_client::ProcessWrapperClient};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use crate::{bench::site, debian::both};

/// Limit for a supervisor to open its socket.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Query {
    way: &'static str,
    client: Client,
}

enum Client {
    Command(Command),
    Grpc(Runtime, ProcessWrapperClient<Channel>),
    XmlRpc(UnixStream),
}

impl Query {
    /// A command, from its start to its end.
    pub(super) fn command(way: &'static str, mut command: Command) -> Query {
        command.stdin(Stdio::null());
        Query { way, client: Client::Command(command) }
    }

    /// grit-wrapper's API, over one connection.
    pub(super) fn grpc(socket: &Path) -> anyhow::Result<Query> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = ProcessWrapperClient::new(runtime.block_on(site::channel(socket))?);
        Ok(Query { way: "CheckStatus, one connection", client: Client::Grpc(runtime, client) })
    }

    /// supervisord's API, over one connection.
    pub(super) fn xml_rpc(socket: &Path) -> anyhow::Result<Query> {
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if start.elapsed() > LIMIT => bail!("supervisord has no socket: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Query { way: "getProcessInfo, one connection", client: Client::XmlRpc(stream) })
    }

    /// The used interface.
    pub(super) fn way(&self) -> String {
        self.way.to_owned()
    }

    /// Reads the state; a process that does not run is an error.
    pub(super) fn call(&mut self) -> anyhow::Result<()> {
        match &mut self.client {
            Client::Command(command) => {
                let output = command.output().context("start the command")?;
                ensure!(
                    output.status.success(),
                    "{command:?} ended with {}: {}",
                    output.status,
                    both(&output)
                );
                Ok(())
            }
            Client::Grpc(runtime, client) => {
                let answer = runtime.block_on(client.check_status(CheckStatusRequest {}))?.into_inner();
                ensure!(answer.status == 1, "the process does not run: {answer:?}");
                Ok(())
            }
            Client::XmlRpc(stream) => {
                let answer = xml_rpc(stream)?;
                ensure!(answer.contains("<name>statename</name>"), "no state in {answer}");
                Ok(())
            }
        }
    }
}

/// One call over HTTP/1.1, which keeps the connection open.
fn xml_rpc(stream: &mut UnixStream) -> anyhow::Result<String> {
    let call = "<?xml version='1.0'?><methodCall><methodName>supervisor.getProcessInfo</methodName>\
        <params><param><value><string>process</string></value></param></params></methodCall>";
    let head = "POST /RPC2 HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\nContent-Length: ";
    write!(stream, "{head}{}\r\n\r\n{call}", call.len()).context("send a call")?;
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).context("read a response")?;
        ensure!(read > 0, "supervisord closed the connection");
        answer.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&answer);
        if text.contains("</methodResponse>") {
            return Ok(text.into_owned());
        }
    }
}

//! Opens the state file and the addresses of `run`.

use tracing::{info, warn};

use super::error::RunError;
use crate::{
    daemon::{
        serve::{
            http,
            listen::{self, Address, Listener, LostSockets, Rules},
        },
        settings::Settings,
        state_path::default_state_file,
    },
    supervise::record::{Record, Saved},
};

/// The state file, with the content that a previous wrapper wrote.
pub(super) struct StateFile {
    pub(super) record: Record,
    pub(super) saved: Option<Saved>,
}

pub(super) struct Opened {
    pub(super) state: Option<StateFile>,
    pub(super) grpc: Vec<Listener>,
    /// For the status only.
    pub(super) status: Option<Listener>,
    pub(super) http: Option<Listener>,
}

const GRPC_LISTEN: &str = "--grpc-listen";
const STATUS_LISTEN: &str = "--status-listen";
const HTTP_LISTEN: &str = "--http-listen";

pub(super) async fn open(settings: &Settings, lost: &LostSockets) -> Result<Opened, RunError> {
    // Its lock comes before the sockets: two wrappers that start together cannot both find the old socket stale.
    let state = open_state(settings).await?;
    let mut grpc = Vec::new();
    for address in &settings.grpc_listen {
        grpc.push(bind(GRPC_LISTEN, address, &settings.grpc_rules, lost).await?);
    }
    let status = match &settings.status_listen {
        Some(address) => Some(bind(STATUS_LISTEN, address, &settings.status_rules, lost).await?),
        None => None,
    };
    let http = match &settings.http {
        Some(http::Settings { address: Address::Unix(_), .. }) => return Err(RunError::HttpAddress),
        Some(http) => Some(bind(HTTP_LISTEN, &http.address, &http_rules(http), lost).await?),
        None => None,
    };
    Ok(Opened { state, grpc, status, http })
}

async fn open_state(settings: &Settings) -> Result<Option<StateFile>, RunError> {
    let path = settings.state_file.clone().or_else(|| default_state_file(&settings.grpc_listen));
    let Some(path) = path else { return Ok(None) };
    let (record, saved) = Record::open(&path).await?;
    Ok(Some(StateFile { record, saved }))
}

/// Binds an address of this flag.
async fn bind(
    flag: &'static str,
    address: &Address,
    rules: &Rules,
    lost: &LostSockets,
) -> Result<Listener, RunError> {
    let opened = listen::bind(address, rules).await;
    let mut listener = opened.map_err(|source| RunError::Listen { flag, source })?;
    listener.report_to(lost);
    log_bound(flag, address, &listener);
    Ok(listener)
}

fn log_bound(flag: &str, address: &Address, listener: &Listener) {
    let server = if flag == HTTP_LISTEN { "HTTP" } else { "gRPC" };
    info!(%address, bound = %listener, "{server} server listening");
    if let (GRPC_LISTEN, Listener::Tcp(_)) = (flag, listener) {
        warn!(
            %address,
            "any user of the host can control the runner at this TCP address, and can listen there while the wrapper does not run; \
             use a unix socket"
        );
    }
}

fn http_rules(settings: &http::Settings) -> Rules {
    Rules { beyond_loopback: settings.remote, allowed_by: settings.remote_allowed_by, ..Rules::default() }
}

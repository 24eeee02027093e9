//! Opens the state file and the addresses of `run`.
//!
//! A unix socket must be bound at the start. A TCP address that is in use, not resolved, or of no network interface is bound as soon as possible:
//! until then the wrapper is not ready, because its clients may be connected to another process.

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{self, BoxFuture},
};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::error::RunError;
use crate::{
    daemon::{
        serve::{
            http,
            listen::{self, Address, EarlierSockets, KeptSockets, Listener, Rules, Unbound},
        },
        settings::Settings,
        state_path::default_state_file,
    },
    supervise::{
        log_key as key,
        record::{Record, Saved},
    },
};

/// A listener, which may have to wait for its address.
pub(super) type Binding = BoxFuture<'static, Listener>;

/// The state file, with the content that a previous wrapper wrote.
pub(super) struct StateFile {
    pub(super) path: PathBuf,
    pub(super) record: Record,
    pub(super) saved: Option<Saved>,
}

pub(super) struct Opened {
    pub(super) state: Option<StateFile>,
    pub(super) grpc: Vec<Binding>,
    pub(super) http: Option<Binding>,
}

const GRPC_LISTEN: &str = "--grpc-listen";
const HTTP_LISTEN: &str = "--http-listen";

/// Delay before an address is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

pub(super) async fn open(
    settings: &Settings,
    mut earlier: EarlierSockets,
    kept: &Arc<KeptSockets>,
    unbound: &Unbound,
) -> Result<Opened, RunError> {
    // Its lock comes before the sockets: two wrappers that start together cannot both find the old socket stale.
    let state = open_state(settings).await?;
    let mut grpc = Vec::new();
    for address in &settings.grpc_listen {
        grpc.push(bind(GRPC_LISTEN, address, &settings.grpc_rules, (&mut earlier, kept), unbound).await?);
    }
    let http = match &settings.http {
        Some(http::Settings { address: Address::Unix(_), .. }) => return Err(RunError::HttpAddress),
        Some(http) => {
            Some(bind(HTTP_LISTEN, &http.address, &http_rules(http), (&mut earlier, kept), unbound).await?)
        }
        None => None,
    };
    // Sockets that are not used are closed, so that the runner does not inherit them.
    drop(earlier);
    Ok(Opened { state, grpc, http })
}

async fn open_state(settings: &Settings) -> Result<Option<StateFile>, RunError> {
    let path = settings.state_file.clone().or_else(|| default_state_file(&settings.grpc_listen));
    let Some(path) = path else { return Ok(None) };
    let (record, saved) = Record::open(&path).await?;
    Ok(Some(StateFile { path, record, saved }))
}

/// Binds an address of this flag.
/// Fails if the address cannot become usable without a change of the settings.
async fn bind(
    flag: &'static str,
    address: &Address,
    rules: &Rules,
    (earlier, kept): (&mut EarlierSockets, &Arc<KeptSockets>),
    unbound: &Unbound,
) -> Result<Binding, RunError> {
    match listen::open_address(address, rules, earlier).await {
        Ok(mut listener) => {
            listener.report_to(unbound);
            log_bound(flag, address, &listener);
            kept.add(address, &listener);
            Ok(future::ready(listener).boxed())
        }
        Err(error) if error.is_temporary() => {
            let error = unbound.add(address, error);
            error!(
                { key::ADDRESS } = %address,
                { key::ERROR } = error,
                "cannot listen on this address of {flag} yet; retrying every {RETRY_DELAY:?}"
            );
            Ok(bind_later(flag, address.clone(), rules.clone(), Arc::downgrade(kept), unbound.clone())
                .boxed())
        }
        Err(source) => Err(RunError::Listen { flag, source }),
    }
}

/// Tries again until the address is bound.
async fn bind_later(
    flag: &'static str,
    address: Address,
    rules: Rules,
    kept: Weak<KeptSockets>,
    unbound: Unbound,
) -> Listener {
    loop {
        sleep(RETRY_DELAY).await;
        match listen::bind(&address, &rules).await {
            Ok(listener) => {
                log_bound(flag, &address, &listener);
                if let Some(kept) = kept.upgrade() {
                    kept.add(&address, &listener);
                }
                unbound.remove(&address);
                return listener;
            }
            Err(error) => {
                let _reported_before = unbound.add(&address, error);
            }
        }
    }
}

fn log_bound(flag: &str, address: &Address, listener: &Listener) {
    let server = if flag == HTTP_LISTEN { "HTTP" } else { "gRPC" };
    info!({ key::ADDRESS } = %address, { key::BOUND } = %listener, "{server} server listening");
    if let (GRPC_LISTEN, Listener::Tcp(_)) = (flag, listener) {
        warn!(
            { key::ADDRESS } = %address,
            "any user of the host can control the runner at this TCP address, and can listen there while the wrapper does not run; \
             use a unix socket"
        );
    }
}

fn http_rules(settings: &http::Settings) -> Rules {
    Rules { beyond_loopback: settings.remote, allowed_by: settings.remote_allowed_by, ..Rules::default() }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, sync::watch};

    use super::*;
    use crate::runner::Health;

    fn none() -> EarlierSockets {
        EarlierSockets::default()
    }

    /// The clock is paused: it advances to the next attempt when no other task can run.
    #[tokio::test(start_paused = true)]
    async fn address_in_use_is_bound_later_and_missing_until_then() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Address = format!("tcp://{}", taken.local_addr().unwrap()).parse().unwrap();
        let (health, observed) = watch::channel(Health::default());
        let unbound = Unbound::new(health);
        let mut binding =
            bind(GRPC_LISTEN, &address, &Rules::default(), (&mut none(), &Arc::default()), &unbound)
                .await
                .unwrap();
        let missing = || observed.borrow().unbound.values().cloned().collect::<Vec<_>>().concat();
        assert!(missing().starts_with(&format!("{address}: in use by another process")), "{}", missing());
        tokio::select! {
            biased;
            listener = &mut binding => panic!("{listener}"),
            () = sleep(3 * RETRY_DELAY) => {}
        }
        drop(taken);
        let listener = binding.await;
        assert_eq!((format!("tcp://{listener}"), missing()), (address.to_string(), String::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_errors_that_settings_cannot_change_are_temporary() {
        let (health, observed) = watch::channel(Health::default());
        let unbound = Unbound::new(health);
        // An address for documentation, which no interface has.
        let address: Address = "tcp://192.0.2.7:7777".parse().unwrap();
        let allowed = Rules { beyond_loopback: true, ..Rules::default() };
        assert!(
            bind(HTTP_LISTEN, &address, &allowed, (&mut none(), &Arc::default()), &unbound).await.is_ok()
        );
        let reasons: Vec<_> = observed.borrow().unbound.values().cloned().collect();
        assert_eq!(
            reasons,
            ["tcp://192.0.2.7:7777: no network interface of this host has the address 192.0.2.7:7777"]
        );
        assert!(
            bind(HTTP_LISTEN, &address, &Rules::default(), (&mut none(), &Arc::default()), &unbound)
                .await
                .is_err()
        );
    }
}

//! Settings of the health probes.

use std::time::Duration;

use super::{config_reader::Reader, runner_source::Source};

#[derive(Clone, Debug)]
pub struct Settings {
    pub source: Source,
    /// Interval between probes of a runner at its maximum level.
    pub interval: Duration,
}

impl Settings {
    /// Decides whether the runner gets this address from the wrapper: only if neither its arguments, its environment nor its configuration have one.
    /// Takes at most a second. The decision is kept, so that the probes read from the address that the runner received.
    pub async fn with_listen_address(mut self, address: Option<String>) -> (Self, Option<String>) {
        let Some(address) = address.filter(|_| self.source.listen_address.is_none()) else {
            return (self, None);
        };
        let config = Reader::new(self.source.clone()).read().await;
        if config.is_ok_and(|config| config.listen_address.is_some()) {
            return (self, None);
        }
        self.source.listen_address = Some(address.clone());
        (self, Some(address))
    }

    /// Long enough for low costs, short enough to show the progress of a drain.
    pub const INTERVAL: Duration = Duration::from_secs(5);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wrapper_sets_listen_address_only_for_a_runner_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        let decide = async |own: Option<&str>, given: Option<&str>| {
            let listen_address = own.map(str::to_owned);
            let source = Source {
                config: config.clone(),
                is_default: false,
                listen_address,
                is_single: false,
                of_process: false,
            };
            let settings = Settings { source, interval: Settings::INTERVAL };
            let (settings, passed) = settings.with_listen_address(given.map(str::to_owned)).await;
            (settings.source.listen_address, passed)
        };
        let one = Some("127.0.0.1:1".to_owned());
        let two = Some("127.0.0.1:2".to_owned());
        // Not written yet.
        assert_eq!(decide(None, one.as_deref()).await, (one.clone(), one.clone()));
        std::fs::write(&config, "concurrent = 1").unwrap();
        assert_eq!(decide(None, one.as_deref()).await, (one.clone(), one.clone()));
        assert_eq!(decide(two.as_deref(), one.as_deref()).await, (two, None));
        assert_eq!(decide(None, None).await, (None, None));
        std::fs::write(&config, "listen_address = \":9300\"").unwrap();
        assert_eq!(
            decide(None, one.as_deref()).await,
            (None, None),
            "the address of the configuration is used"
        );
    }
}

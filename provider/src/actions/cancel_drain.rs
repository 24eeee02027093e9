//! `grit_cancel_drain`: cancels drains whose signal was not sent to the runner yet.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{Schema, Value, object, object_schema, text},
};
use tokio::time::Instant;

use super::{Done, configured, managers_attribute, over, progress::Watched};
use crate::{
    client::Client,
    config::{
        drain::{DRAIN_ATTEMPTS, shortened},
        manager::{self, RunnerManagers, check_managers},
        object::{Object as _, check_object, object},
        retry::RetryArgs,
        timeouts::InvokeTimeout,
    },
    context::Context,
    duration::human,
    explain::{self, action::CancelWords},
    fleet::{
        self,
        cancel::{CancelPolicy, Cancelled},
    },
    manager::Manager,
};

const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct CancelDrain {
    pub context: Arc<Context>,
}

object! {
    /// The block `config`.
    pub struct CancelConfig {
        runner_managers: RunnerManagers = managers_attribute => "whose drains are cancelled", check_managers;
        drain_id: Value<String> = text =>
            "Cancel only the drain with this id, such as the `id` of a `grit_runner_drain`. Default: any drain.";
        retry: Value<RetryArgs> = object(RetryArgs::attributes(&DRAIN_ATTEMPTS.to_string())) =>
            "Retries of failed connections.", check_object;
        timeouts: Value<InvokeTimeout> = object(InvokeTimeout::attributes(&human(TIMEOUT))) => "Timeouts.", check_object;
    }
}

#[async_trait]
impl Block for CancelDrain {
    type Config = CancelConfig;
    type Output = ();

    fn schema(&self) -> Schema {
        object_schema(
            0,
            "Cancels the drains of a map of runner managers, as long as the wrapper has not sent SIGQUIT to the runner. Requires \
             grit-wrapper on the hosts.",
            CancelConfig::attributes(),
        )
    }

    async fn check(&self, config: CancelConfig) -> Result<(), Problems> {
        config.check()
    }

    async fn run(&self, config: CancelConfig) -> Result<(), Problems> {
        let start = Instant::now();
        let configuration = &*configured(&self.context, &config.runner_managers)?;
        let policy = &CancelPolicy {
            start,
            timeout: InvokeTimeout::invoke(&config.timeouts, TIMEOUT),
            id: config.drain_id.as_ref_option().map(|id| shortened(id)).unwrap_or_default(),
            retry: configuration.retry(config.retry.as_ref_option(), Some(DRAIN_ATTEMPTS)),
        };
        let stop = &call().stop;
        let operation = |manager: Manager, wrapper: Watched<Client>| async move {
            let line = match fleet::cancel::run(&manager.name, &wrapper, policy, stop).await? {
                Cancelled::Done => "the drain was cancelled",
                Cancelled::NotDraining => "no drain is in progress",
            };
            Ok(Done { line: line.to_owned(), warnings: Vec::new() })
        };
        over(manager::resolve(&config.runner_managers, configuration), start, operation, |name, failure| {
            explain::failure(&CancelWords(name), failure)
        })
        .await
    }
}

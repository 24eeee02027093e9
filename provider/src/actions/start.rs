//! `grit_start`: starts runners that have exited, and waits until they are healthy.

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
        enum_attribute::{EnumAttribute as _, check_member, member},
        health_level::RequiredLevel,
        manager::{self, RunnerManagers, check_managers},
        object::{Object as _, check_object, object},
        retry::RetryArgs,
        timeouts::InvokeTimeout,
    },
    context::Context,
    duration::human,
    explain::{self, action::StartWords},
    fleet::{self, health::HealthPolicy},
    manager::Manager,
};

const TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct Start {
    pub context: Arc<Context>,
}

object! {
    /// The block `config`.
    pub struct StartConfig {
        runner_managers: RunnerManagers = managers_attribute => "to start", check_managers;
        level: Value<String> = text => format!(
            "Health level to wait for: {}, as in `grit_runner_health`.",
            RequiredLevel::<false>::choices()
        ), check_member::<RequiredLevel<false>>;
        retry: Value<RetryArgs> = object(RetryArgs::attributes("no limit (retries end at the timeout)")) =>
            "Retries of failed connections.", check_object;
        timeouts: Value<InvokeTimeout> = object(InvokeTimeout::attributes(&human(TIMEOUT))) => "Timeouts.", check_object;
    }
}

#[async_trait]
impl Block for Start {
    type Config = StartConfig;
    type Output = ();

    fn schema(&self) -> Schema {
        object_schema(
            0,
            "Starts the exited runners of a map of runner managers, and waits until all runners of the map are healthy. \
             Requires grit-wrapper on the hosts.",
            StartConfig::attributes(),
        )
    }

    async fn check(&self, config: StartConfig) -> Result<(), Problems> {
        config.check()
    }

    async fn run(&self, config: StartConfig) -> Result<(), Problems> {
        let start = Instant::now();
        let configuration = &*configured(&self.context, &config.runner_managers)?;
        let policy = &HealthPolicy {
            start,
            timeout: InvokeTimeout::invoke(&config.timeouts, TIMEOUT),
            stable_for: Duration::ZERO,
            min_jobs: 0,
            level: member::<RequiredLevel<false>>(&config.level).0,
            expected_version: None,
            start_if_stopped: true,
            gitlab: None,
            retry: configuration.retry(config.retry.as_ref_option(), None),
        };
        let stop = &call().stop;
        let operation = |manager: Manager, wrapper: Watched<Client>| async move {
            let healthy = fleet::health::wait(&manager.name, &wrapper, policy, stop).await?;
            let line = format!("the runner is healthy after {}", human(healthy.waited));
            Ok(Done { line, warnings: Vec::new() })
        };
        over(manager::resolve(&config.runner_managers, configuration), start, operation, |name, failure| {
            explain::failure(&StartWords(name), failure)
        })
        .await
    }
}

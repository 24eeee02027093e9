//! `grit_start`: starts runners that have exited, and waits until they are healthy.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, attribute_map, call,
    schema::{AttributePath, Schema, Value, object, object_schema, text},
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Done, configured, managers_attribute, over, progress::Watched};
use crate::{
    client::{Level, WrapperClient},
    config::{
        enum_attribute::{self, EnumAttribute, member},
        manager::{self, RunnerManagers},
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

/// The block `config`.
#[derive(Clone, Default, Deserialize)]
pub struct StartConfig {
    runner_managers: RunnerManagers,
    level: Value<String>,
    retry: Value<RetryArgs>,
    timeouts: Value<InvokeTimeout>,
}

/// A value of `level`. A runner reaches `working` only with jobs, which a start does not wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedLevel {
    Auto,
    Level(Level),
}

impl EnumAttribute for WantedLevel {
    const VALUES: &'static [(Self, &'static str)] = &[
        (Self::Auto, "auto"),
        (Self::Level(Level::Process), Level::Process.as_str()),
        (Self::Level(Level::Ready), Level::Ready.as_str()),
        (Self::Level(Level::Polling), Level::Polling.as_str()),
    ];
}

impl WantedLevel {
    /// The level; none for `auto`.
    fn level(self) -> Option<Level> {
        match self {
            Self::Auto => None,
            Self::Level(level) => Some(level),
        }
    }
}

#[async_trait]
impl Block for Start {
    type Config = StartConfig;
    type Output = ();

    fn schema(&self) -> Schema {
        object_schema(
            0,
            "Starts the runners of a map of runner managers that have exited, and waits until all runners of the map are healthy. \
             Requires grit-wrapper on the hosts.",
            attribute_map! {
                runner_managers: managers_attribute => "to start",
                level: text =>
                    &format!("Health level to wait for: {}, as in `grit_runner_health`.", WantedLevel::choices()),
                retry: object(RetryArgs::attributes("until the timeout")) => "Retries of failed connections.",
                timeouts: object(InvokeTimeout::attributes(&human(TIMEOUT))) => "Timeouts.",
            },
        )
    }

    async fn check(&self, config: StartConfig) -> Result<(), Problems> {
        let mut problems = Problems::default();
        manager::check_map(&config.runner_managers, &mut problems);
        enum_attribute::check::<WantedLevel>(&config.level, AttributePath::new("level"), &mut problems);
        RetryArgs::check(&config.retry, &mut problems);
        InvokeTimeout::check(&config.timeouts, &mut problems);
        problems.or(())
    }

    async fn run(&self, config: StartConfig) -> Result<(), Problems> {
        let start = Instant::now();
        let configuration = &*configured(&self.context, &config.runner_managers)?;
        let policy = &HealthPolicy {
            start,
            timeout: InvokeTimeout::invoke(&config.timeouts, TIMEOUT),
            stable_for: Duration::ZERO,
            min_jobs: 0,
            level: member::<WantedLevel>(&config.level).level(),
            expected_version: None,
            start_if_stopped: true,
            retry: configuration.retry(config.retry.as_ref_option(), None),
        };
        let stop = &call().stop;
        let operation = |manager: Manager, wrapper: Watched<WrapperClient>| async move {
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

//! The commands of the drop-in of a runner's unit: systemd executes them when the unit is stopped, and after the runner has exited.

use std::{env, fs, path::Path, time::Duration};

use clap::Parser;
use grit_proto::{
    SIGNAL_DRAIN,
    wrapper_v1::{DrainRequest, Mode},
};
use tokio::time::timeout;

use super::{client::Client, error::CommandError, run_flags::Run};
use crate::{
    daemon::{run, settings::Settings, unit_files},
    supervise::{
        UnitName,
        owner::{Unit, record_exit},
        process::Exited,
    },
};

/// How long a wrapper may not respond before this command looks for one again: a wrapper that was killed is started again within a second.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// The same after a wrapper has accepted the drain: the next wrapper continues it, unless the state file is lost.
const ACCEPTED_INTERVAL: Duration = Duration::from_secs(60);

/// The number of attempts to reach the wrapper, before this command drains the runner itself.
const ATTEMPTS: u32 = 4;

/// Drains the main process of the unit through its wrapper, and returns when it has exited. If the wrapper does not run, this process takes its place
/// until then. If that is not possible, it returns before: systemd then sends SIGQUIT, without a gap between job requests.
pub(super) async fn exec_stop(unit: &UnitName) -> Result<(), CommandError> {
    // Empty if the main process has exited by itself.
    let Some(pid) = env::var("MAINPID").ok().and_then(|pid| pid.parse().ok()) else { return Ok(()) };
    let exited = Exited::of(pid)?;
    let mut failures = 0;
    loop {
        let mut interval = RETRY_INTERVAL;
        let result = drain(unit).await;
        let is_refused = matches!(result, Err(CommandError::Refused(_)));
        match result {
            Ok(()) => (failures, interval) = (0, ACCEPTED_INTERVAL),
            Err(error) => {
                failures += 1;
                report(&format!("{:#}", anyhow::Error::new(error)));
            }
        }
        if timeout(interval, exited.wait()).await.is_ok() {
            return Ok(());
        }
        if failures >= ATTEMPTS {
            if !is_refused && drain_without_wrapper(unit).await {
                return Ok(());
            }
            report("the runner cannot be drained in a gap between job requests; systemd sends SIGQUIT now");
            return Ok(());
        }
    }
}

async fn drain(unit: &UnitName) -> Result<(), CommandError> {
    let request = DrainRequest {
        id: SIGNAL_DRAIN.to_owned(),
        mode: Mode::Graceful.into(),
        reason: "systemd stops the unit of the runner".to_owned(),
        by_service_manager: true,
        ..DrainRequest::default()
    };
    let client = Client::connect(&unit_files::socket(unit)).await?;
    client.ask(async |client| client.drain(request).await).await.map(|_| ())
}

/// The flags of the wrapper of a unit.
#[derive(Debug, Parser)]
struct OfUnit {
    #[command(flatten)]
    run: Run,
}

/// The same drain by this process; returns whether the runner has exited. Not possible if a wrapper has the state file.
async fn drain_without_wrapper(unit: &UnitName) -> bool {
    report("draining without the wrapper");
    let unit = unit.clone();
    // In a thread, because it has a runtime of its own.
    let drained = tokio::task::spawn_blocking(move || {
        fs::create_dir_all(unit_files::FOLDER).map_err(|error| error.to_string())?;
        let OfUnit { run: flags } = OfUnit::try_parse_from(["grit-wrapper", "--unit", unit.as_str()])
            .map_err(|error| error.to_string())?;
        let settings = Settings { drain_at_start: true, ..flags.settings() };
        run::run(&settings).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    });
    match drained.await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            report(&error);
            false
        }
        Err(panic) => {
            report(&panic.to_string());
            false
        }
    }
}

/// Records how the main process of the unit ended, from the environment: systemd.exec(5).
pub(super) fn exec_stop_post(unit: &UnitName) -> Result<(), CommandError> {
    let variable = |name| env::var(name).unwrap_or_default();
    let path = Unit::exit_file(Path::new(unit_files::FOLDER), unit);
    let (invocation, code, status) =
        (variable("INVOCATION_ID"), variable("EXIT_CODE"), variable("EXIT_STATUS"));
    match code.as_str() {
        // A start that a condition has prevented.
        "" => Ok(()),
        code => {
            fs::create_dir_all(unit_files::FOLDER)?;
            Ok(record_exit(&path, &invocation, code, &status)?)
        }
    }
}

/// systemd writes it to the journal of the runner's unit.
#[expect(clippy::print_stderr, reason = "stderr is the output of the commands")]
fn report(text: &str) {
    eprintln!("grit-wrapper exec-stop: {}", crate::text::visible::visible(text));
}

//! The supervisor of `run`: of a child, or of the main process of a unit.

use std::{collections::BTreeMap, env, ffi::OsString, pin::Pin};

use tokio::sync::watch;
use tracing::{error, warn};

use super::{addresses::StateFile, error::RunError};
use crate::{
    daemon::{
        callback::CallbackSender,
        host::systemd::OF_WRAPPER,
        settings::{Settings, Target},
        unit_files::FOLDER,
    },
    runner::Health,
    supervise::{
        End, Handle, Moment, Owner, Policy, Supervision, Task, Unit, UnitName,
        journal::Journal,
        owner::{Child, Linux},
        process::{CommandLine, Spawner},
        record::{Record, Saved},
    },
};

/// The faults of the runner's unit have keys that begin with this.
const UNIT_FAULT: &str = "unit ";

fn spawner(listen_address: Option<String>, command: CommandLine) -> Spawner {
    let address = listen_address.map(|address| ("LISTEN_ADDRESS", OsString::from(address)));
    Spawner { env: address.into_iter().collect(), not_inherited: &OF_WRAPPER, ..Spawner::new(command) }
}

/// The task of a supervisor.
pub(super) type Supervising = Pin<Box<dyn Future<Output = End> + Send>>;

/// The supervisor of the target. `listen_address`: for a child that has none.
pub(super) fn of_target(
    settings: &Settings,
    listen_address: Option<String>,
    state: Option<StateFile>,
    callbacks: CallbackSender,
    health: &watch::Sender<Health>,
) -> Result<(Supervising, Handle), RunError> {
    match &settings.target {
        Target::Command(words) => {
            let command = CommandLine::new(words.clone(), env::var_os("PATH"))?;
            of_child(settings, &command, listen_address, state, callbacks)
        }
        Target::Unit(unit) => of_unit(settings, unit, state, callbacks, health),
    }
}

/// The supervisor of a child. If the runner of a wrapper that was killed is running, its exit is waited for.
fn of_child(
    settings: &Settings,
    command: &CommandLine,
    listen_address: Option<String>,
    state: Option<StateFile>,
    callbacks: CallbackSender,
) -> Result<(Supervising, Handle), RunError> {
    let (record, saved) = state.map_or((None, None), |state| (Some(state.record), state.saved));
    let spawner = spawner(listen_address, command.clone());
    let earlier = saved.as_ref().and_then(Saved::process);
    let owner = Child::with_earlier(spawner, earlier).map_err(RunError::Earlier)?;
    let supervision = saved.map(|saved| child_continues(saved, owner.is_running(), &settings.policy));
    check_command(command, owner.is_running())?;
    Ok(supervisor(settings, owner, (record, supervision), None, callbacks))
}

/// What a wrapper makes of the state of an earlier one, whose child is running or not.
pub(crate) fn child_continues(saved: Saved, is_running: bool, policy: &Policy) -> Supervision {
    let now = Moment::now();
    match (saved.process(), is_running) {
        (Some(child), true) => {
            warn!(pid = child.pid(), "the runner of a killed wrapper is running: waiting for its exit");
            saved.supervision.of_killed_parent(now, policy)
        }
        (Some(_), false) => {
            warn!("the runner of a killed wrapper has exited");
            saved.supervision.of_killed_parent(now, policy)
        }
        (None, _) => saved.supervision.continued(now, policy),
    }
}

/// The same with a unit, which is closed for starts or not.
pub(crate) fn unit_continues(
    saved: Option<Saved>,
    is_closed: bool,
    unit: &UnitName,
    policy: &Policy,
) -> Option<Supervision> {
    match saved {
        Some(saved) => Some(saved.supervision.continued(Moment::now(), policy)),
        None if is_closed => {
            warn!(%unit, "the unit is closed for starts, but there is no state file: the drain goes on, and what a client has requested besides is lost");
            Some(Supervision::of_lost_stop())
        }
        None => None,
    }
}

/// The supervisor of the main process of a unit.
fn of_unit(
    settings: &Settings,
    unit: &UnitName,
    state: Option<StateFile>,
    callbacks: CallbackSender,
    health: &watch::Sender<Health>,
) -> Result<(Supervising, Handle), RunError> {
    let (record, saved) = state.map_or((None, None), |state| (Some(state.record), state.saved));
    let earlier = saved.as_ref().map(Saved::process_of_unit);
    let is_closed = Unit::is_closed(FOLDER.as_ref(), unit);
    let supervision = unit_continues(saved, is_closed, unit, &settings.policy);
    let health = health.clone();
    let faults = move |faults: Vec<String>| {
        let numbered = |(number, fault)| (format!("{UNIT_FAULT}{number:02}"), fault);
        let found: BTreeMap<_, _> = faults.into_iter().enumerate().map(numbered).collect();
        health.send_if_modified(|health| {
            let mut all = health.faults.clone();
            all.retain(|key, _| !key.starts_with(UNIT_FAULT));
            all.extend(found);
            let is_new = all != health.faults;
            health.faults = all;
            is_new
        });
    };
    let owner = Unit::new(Linux, unit.clone(), FOLDER.into(), Box::new(faults));
    let owner = match earlier {
        Some(process) => owner.after(process).map_err(RunError::Earlier)?,
        None => owner,
    };
    Ok(supervisor(settings, owner, (record, supervision), Some(Journal::of_unit(unit)), callbacks))
}

fn supervisor(
    settings: &Settings,
    owner: impl Owner,
    (record, supervision): (Option<Record>, Option<Supervision>),
    journal: Option<Journal>,
    callbacks: CallbackSender,
) -> (Supervising, Handle) {
    let (task, supervisor) = Task::new(settings.policy.clone(), owner, callbacks);
    let mut task = task.read_log(journal);
    if let Some(record) = record {
        task = task.save_to(record);
    }
    if let Some(supervision) = supervision {
        task = task.resume(supervision);
    }
    (Box::pin(task.run()), supervisor)
}

/// Fails for a command that cannot be executed, except while the runner of a killed wrapper is running.
fn check_command(command: &CommandLine, is_running: bool) -> Result<(), RunError> {
    match command.program() {
        Ok(_) => Ok(()),
        Err(error) if is_running => {
            let error = format!("{:#}", anyhow::Error::new(error));
            error!(error, "no runner can be started after the exit of the present one");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

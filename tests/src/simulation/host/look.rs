//! What the wrapper of a unit sees of it, and does with it: `owner::Unit`, and `Task::look`.

use std::{sync::Arc, time::Duration};

use grit_wrapper::{
    supervise::{ChildInfo, Event, Moment, Refusal, State},
    testing,
};
use tokio::time::Instant;

use super::{
    super::{
        runner::Mode,
        world::{Happening, Inner},
    },
    Happens, Owner, identity,
    unit::{Phase, SHOWN_WITHIN},
    wrapper::{Busy, Killed},
};

/// `owner::unit::LOOK_INTERVAL`, `LATE_LOOK_INTERVAL` and `LOOK_PERIOD`.
const INTERVAL: Duration = Duration::from_millis(500);
const LATE_INTERVAL: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(60);

/// `owner::unit::SETTLED_AFTER`.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// systemd does not respond, or the start of the unit takes too long: it is unknown whether a process runs.
struct Silent;

/// What follows a look for a runner: events, and whether each is the request.
type Found = Result<Vec<(Event, bool)>, Refusal>;

impl Inner {
    /// `Owner::hold`. Returns why the unit cannot be closed.
    pub(super) fn hold(&mut self, instance: &str, held: bool) -> Option<Arc<str>> {
        let host = self.hosts.get_mut(instance)?;
        let works = host.disk_works;
        let Owner::Unit(unit) = &mut host.owner else { return None };
        host.wrapper.as_mut()?.held = held;
        match held {
            true if !unit.is_closed && !works && unit.gate_needs_space => {
                unit.open_by_fault = Some(Instant::now());
                return Some("no space left on device".into());
            }
            true => (unit.is_closed, unit.open_by_fault) = (true, None),
            false => (unit.is_closed, unit.open_by_fault) = (false, None),
        }
        None
    }

    /// `Task::look`.
    pub(super) fn looks_for_runner(&mut self, instance: &str, request: Event) -> Result<Found, Killed> {
        self.trace.count("the wrapper looks for a runner before it answers");
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let is_held = wrapper.is_some_and(|wrapper| testing::is_held(&wrapper.supervision));
        if self.hold(instance, is_held || testing::is_held_by(&request)).is_some() {
            return Ok(Err(Refusal::OwnerSilent));
        }
        self.survives(instance)?;
        Ok(match self.news(instance) {
            Ok(None) => Ok(vec![(Event::Looked(Box::new(request)), true)]),
            Ok(Some(news)) => Ok(vec![(news, false), (request, true)]),
            Err(Silent) => {
                self.trace.count("request refused: systemd does not respond");
                Err(Refusal::OwnerSilent)
            }
        })
    }

    /// `Unit::news` without a main process.
    fn news(&mut self, instance: &str) -> Result<Option<Event>, Silent> {
        let news = self.look(instance)?;
        match news {
            None | Some(Event::NotRestarted) => Ok(self.exited_unseen(instance).or(news)),
            news => Ok(news),
        }
    }

    /// `Unit::exited_unseen`
    fn exited_unseen(&mut self, instance: &str) -> Option<Event> {
        let host = self.hosts.get_mut(instance)?;
        let boot = host.boot();
        let (Owner::Unit(unit), Some(wrapper)) = (&host.owner, &mut host.wrapper) else { return None };
        let pid = unit.shown()?;
        let before = wrapper.last_known.replace(pid);
        if wrapper.held || before.is_none_or(|before| before == pid) {
            return None;
        }
        self.trace.count("the exit of a runner that was never seen is reported");
        Some(Event::Appeared(ChildInfo { process: identity(pid, boot), started: Moment::now() }))
    }

    /// What systemd shows of a main process.
    fn look(&mut self, instance: &str) -> Result<Option<Event>, Silent> {
        let unit = self.unit(instance).ok_or(Silent)?;
        if unit.silent_until().is_some() {
            return Err(Silent);
        }
        let (phase, turn) = (unit.phase(), unit.turn);
        let is_held = self.hosts.get(instance).and_then(|it| it.wrapper.as_ref()).is_some_and(|it| it.held);
        match phase {
            Phase::Starting { until } => {
                let is_soon = until <= Instant::now() + SHOWN_WITHIN;
                match is_held {
                    false => return Ok(None),
                    true if !is_soon => return Err(Silent),
                    // It waits for the end of the start.
                    true => self.unit_turns(instance, turn),
                }
            }
            Phase::Restarting if is_held => self.unit_stop_by_wrapper(instance),
            _ => {}
        }
        let host = self.hosts.get_mut(instance).ok_or(Silent)?;
        let is_executed = host.runner.as_ref().is_some_and(|runner| runner.mode != Mode::BeforeExec);
        if let Some(child) = host.child().filter(|_| is_executed) {
            if let Some(facts) = &mut host.facts {
                facts.watched_since = Instant::now();
            }
            if let Some(wrapper) = &mut host.wrapper {
                wrapper.is_unsettled = false;
                wrapper.last_known = Some(child.pid());
            }
            if is_held {
                self.trace.count("a runner is found, and the unit is closed");
            }
            return Ok(Some(Event::Appeared(child)));
        }
        let Owner::Unit(unit) = &host.owner else { return Err(Silent) };
        let wrapper = host.wrapper.as_mut().ok_or(Silent)?;
        let is_over = unit.phase() == Phase::Dead && wrapper.idle_since.elapsed() >= SETTLED_AFTER;
        Ok((is_over && std::mem::take(&mut wrapper.is_unsettled)).then_some(Event::NotRestarted))
    }

    /// After an event: when the wrapper looks next.
    pub(super) fn schedule_look(&mut self, instance: &str) {
        if !self.is_unit(instance) {
            return;
        }
        let Some(wrapper) = self.hosts.get_mut(instance).and_then(|host| host.wrapper.as_mut()) else {
            return;
        };
        if wrapper.supervision.state.child().is_some() {
            return;
        }
        wrapper.look += 1;
        let (number, look) = (wrapper.number(), wrapper.look);
        let interval = if wrapper.idle_since.elapsed() < PERIOD { INTERVAL } else { LATE_INTERVAL };
        self.later(instance, interval, Happening::Host(Happens::Looks { wrapper: number, look }));
    }

    pub(super) fn wrapper_looks_at_unit(&mut self, instance: &str, number: u32, look: u64) {
        let Some(wrapper) = self.wrapper(instance, number).filter(|wrapper| wrapper.look == look) else {
            return;
        };
        let has_child = wrapper.supervision.state.child().is_some();
        if has_child || wrapper.supervision.state == State::Starting || wrapper.busy.is_some() {
            return self.schedule_look(instance);
        }
        match self.news(instance) {
            Ok(Some(news)) => drop(self.deliver(instance, news)),
            Ok(None) | Err(Silent) => self.schedule_look(instance),
        }
    }

    /// `Unit::start`: waits for the process of the start.
    pub(super) fn start_is_awaited(&mut self, instance: &str, number: u32, until: Instant) {
        if self.wrapper(instance, number).is_none_or(|wrapper| wrapper.busy != Some(Busy::Start)) {
            return;
        }
        let found = match self.look(instance) {
            Ok(Some(Event::Appeared(child))) => Some(Event::Spawned(child)),
            _ if Instant::now() >= until => Some(Event::SpawnFailed("it does not run".into())),
            _ if self.unit(instance).is_none_or(|unit| unit.phase() == Phase::Dead) => {
                Some(Event::SpawnFailed("it is over".into()))
            }
            _ => None,
        };
        match found {
            Some(found) => self.wrapper_is_free(instance, Some(found)),
            None => {
                let again = Happening::Host(Happens::UnitStarted { wrapper: number, until });
                self.later(instance, Duration::from_millis(20), again);
            }
        }
    }
}

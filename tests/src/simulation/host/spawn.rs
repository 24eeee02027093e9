//! The start of a runner by its wrapper: `Owner::start`.

use std::{collections::VecDeque, time::Duration};

use grit_wrapper::supervise::Event;

use super::{
    super::world::{Happening, Inner},
    Happens, Owner,
    wrapper::{Busy, Killed},
};

impl Inner {
    pub(super) fn spawn(
        &mut self,
        instance: &str,
        events: &mut VecDeque<(Event, bool)>,
    ) -> Result<(), Killed> {
        // `publish`: a start can take long.
        self.changed(instance);
        match self.hosts.get(instance).map(|host| &host.owner) {
            Some(Owner::Child(_)) => self.spawn_child(instance, events),
            Some(Owner::Unit(_)) => {
                let until = self.unit_start_by_wrapper(instance);
                let wrapper = self.is_busy_now(instance, Busy::Start);
                let started = Happening::Host(Happens::UnitStarted { wrapper, until });
                self.later(instance, Duration::from_millis(20), started);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn spawn_child(&mut self, instance: &str, events: &mut VecDeque<(Event, bool)>) -> Result<(), Killed> {
        if self.random.percent(2) && !self.is_quiet {
            self.trace.count("spawn failed");
            events.push_back((Event::SpawnFailed("not found".into()), false));
            return Ok(());
        }
        let exec = if self.random.percent(3) { self.random.millis(1, 15_000) } else { Duration::ZERO };
        let parent = self.number(instance);
        let Some(pid) = self.fork_runner(instance, Some(parent)) else { return Ok(()) };
        self.survives(instance)?;
        let Some(child) = self.hosts.get(instance).and_then(super::Host::child) else { return Ok(()) };
        if exec.is_zero() {
            self.executed(instance, pid);
            events.push_back((Event::Spawned(child), false));
        } else {
            self.trace.count("exec of the runner is slow");
            let wrapper = self.is_busy_now(instance, Busy::Start);
            self.later(instance, exec, Happening::Host(Happens::Executed { wrapper, child }));
        }
        Ok(())
    }

    /// The task of the wrapper waits. Returns the number of the wrapper.
    fn is_busy_now(&mut self, instance: &str, busy: Busy) -> u32 {
        let number = self.number(instance);
        if let Some(wrapper) = self.wrapper(instance, number) {
            wrapper.busy = Some(busy);
        }
        number
    }
}

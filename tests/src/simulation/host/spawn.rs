//! The start of a runner: `Task::try_spawn`.

use std::{collections::VecDeque, time::Duration};

use grit_wrapper::supervise::{ChildInfo, Event, Moment};

use super::{
    super::{
        runner::Runner,
        world::{Happening, Inner},
    },
    Happens,
    file::File::Saved,
    identity,
    process::Facts,
    wrapper::{Busy, Killed},
};

impl Inner {
    pub(super) fn spawn(&mut self, instance: &str, events: &mut VecDeque<Event>) -> Result<(), Killed> {
        // `publish`: a start can take long.
        self.changed(instance);
        if self.random.percent(2) {
            self.trace.count("spawn failed");
            events.push_back(Event::SpawnFailed("not found".into()));
            return Ok(());
        }
        self.next_pid += 1;
        let pid = self.next_pid;
        let cleanup = self.random.millis(10, 60_000);
        let hangs = self.random.percent(1);
        let exec = if self.random.percent(3) { self.random.millis(1, 15_000) } else { Duration::ZERO };
        let facts = Facts::new(pid);
        let Some(host) = self.hosts.get_mut(instance) else { return Ok(()) };
        let runner = Runner::new(pid, host.setup.clone(), cleanup, hangs);
        let earlier = host.runner.replace(runner);
        host.facts = Some(facts);
        let (boot, accepted) = (host.boot(), host.promise.accepted);
        if let Some(earlier) = earlier {
            self.violation(instance, format!("runner {pid} is started beside runner {}", earlier.pid));
        }
        if accepted {
            self.violation(instance, format!("runner {pid} is started after an accepted drain"));
        }
        self.survives(instance)?;
        let child = ChildInfo { process: identity(pid, boot), started: Moment::now() };
        let _note = self.step(instance, Event::Forked(child));
        self.survives(instance)?;
        self.save(instance);
        self.survives(instance)?;
        if let Err(why) = self.release(instance, child) {
            events.push_back(Event::SpawnFailed(why.into()));
            return Ok(());
        }
        if exec.is_zero() {
            self.executed(instance, pid);
            events.push_back(Event::Spawned(child));
        } else {
            self.trace.count("exec of the runner is slow");
            let wrapper = self.number(instance);
            if let Some(wrapper) = self.wrapper(instance, wrapper) {
                wrapper.busy = Some(Busy::Exec);
            }
            self.later(instance, exec, Happening::Host(Happens::Executed { wrapper, child }));
        }
        Ok(())
    }

    /// From now on, the process becomes a runner whatever happens to the wrapper: the next one must be able to find it.
    fn release(&mut self, instance: &str, child: ChildInfo) -> Result<(), String> {
        let Some(host) = self.hosts.get_mut(instance) else { return Ok(()) };
        let Some(wrapper) = &mut host.wrapper else { return Ok(()) };
        let has_child = matches!(&host.file, Saved { supervision, .. }
            if supervision.state.process() == Some(child));
        if let Some(error) = wrapper.supervision.save_error.as_ref().filter(|_| !host.has_cgroup) {
            let why = format!("the state file cannot be written: {error}");
            // `kill_and_collect`.
            (host.runner, host.facts) = (None, None);
            self.trace.count("spawn failed: the next wrapper would not find the runner");
            return Err(why);
        }
        let is_unrecorded = !has_child && (wrapper.supervision.save_error.is_none() || !host.has_cgroup);
        if let Some(facts) = &mut host.facts {
            facts.is_released = true;
        }
        if is_unrecorded {
            self.violation(
                instance,
                format!("runner {} starts, and the state file does not have it", child.pid()),
            );
        }
        Ok(())
    }
}

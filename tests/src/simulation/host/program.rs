//! The wrapper process of a host: the real program, which the simulation polls, holds up and kills.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use grit_wrapper::{
    supervise::{Callback, Cancel, Completion, HandleError, Stop, Supervision},
    testing::{Client, First, Settings, Stream, Wrapper as Program},
};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::{
    super::{
        alarm::Alarm,
        world::{Happening, Inner, World},
    },
    Happens, Host, Owner,
    file::File,
    kernel::{Seen, Surroundings},
    reads::Reads,
    table,
};

/// A wrapper process.
pub(in crate::simulation) struct Wrapper {
    number: u32,
    /// It is the command of `ExecStop=`, and exits after the runner.
    pub(super) is_exec_stop: bool,
    /// Of its supervisor, after the last transition.
    pub(super) supervision: Supervision,
    /// `None`: it has just been started.
    pub(super) client: Option<Client>,
    /// Connections that wait for it.
    backlog: Vec<(Box<dyn Stream>, u32)>,
    tasks: Vec<AbortHandle>,
    pub(super) reads: Reads,
    /// Its only thread waits until then: for a slow write, or for the exec of the runner.
    frozen_until: Instant,
    /// What the thread does at the end of that wait.
    pub(super) later: Vec<Later>,
    /// The state in the file, if the last write has succeeded.
    pub(super) written: Option<Supervision>,
    /// Callbacks that are being sent.
    pub(super) callbacks: Vec<(Callback, Completion)>,
    /// When the first SIGTERM was answered.
    pub(super) signalled: Option<Instant>,
    /// It waits for systemd, which does not respond.
    pub(super) awaits_systemd: bool,
}

/// A change that comes after a slow write.
#[derive(Debug)]
pub(super) enum Later {
    Written(Vec<u8>),
    Closed(bool),
}

/// The wrapper was killed.
#[derive(Debug)]
pub(super) struct Killed;

/// A callback that a drain has requested.
#[derive(Debug)]
pub(super) struct OfDrain {
    pub(super) callback: Callback,
    /// The runner at the request.
    pub(super) pid: Option<u32>,
    /// The request was answered.
    is_promised: bool,
    is_sent: bool,
}

impl OfDrain {
    pub(super) fn new(callback: Callback, pid: Option<u32>) -> Self {
        Self { callback, pid, is_promised: false, is_sent: false }
    }
}

/// A request of a program of the host.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Stop(Stop),
    Leave(Stop),
    Cancel,
    Start,
    Reload,
}

impl Wrapper {
    pub(super) fn new(number: u32, is_exec_stop: bool) -> Self {
        Self {
            number,
            is_exec_stop,
            supervision: Supervision::default(),
            client: None,
            backlog: Vec::new(),
            tasks: Vec::new(),
            reads: Reads::default(),
            frozen_until: Instant::now(),
            later: Vec::new(),
            written: None,
            callbacks: Vec::new(),
            signalled: None,
            awaits_systemd: false,
        }
    }

    pub(in crate::simulation) fn number(&self) -> u32 {
        self.number
    }

    /// A connection of a client, whose requests are those of this user.
    pub(in crate::simulation) fn accept(&mut self, stream: impl Stream, uid: u32) {
        match &self.client {
            Some(client) => client.connect(stream, uid),
            None => self.backlog.push((Box::new(stream), uid)),
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        Instant::now() < self.frozen_until
    }

    /// Its state as the table names it, and when its timer is due.
    pub(super) fn table_state(
        &self,
        policy: &grit_wrapper::supervise::Policy,
    ) -> Option<(&'static str, Option<Instant>)> {
        Some((table::variant(&self.supervision.state, policy)?, self.supervision.due()))
    }
}

impl fmt::Debug for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrapper {}", self.number)
    }
}

impl Drop for Wrapper {
    /// Its tasks end before they are polled again.
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Host {
    /// Its wrapper does nothing now but what it is at.
    pub(in crate::simulation) fn is_busy(&self) -> bool {
        let Some(wrapper) = &self.wrapper else { return false };
        let state = &wrapper.supervision.state;
        let awaits_exit = state.child().is_some_and(|child| self.has_exited(child));
        wrapper.client.is_none()
            || wrapper.is_frozen()
            || awaits_exit
            || wrapper.awaits_systemd
            || *state == grit_wrapper::supervise::State::Starting
    }

    /// A client of its wrapper.
    pub(in crate::simulation) fn client(&self) -> Option<Client> {
        self.wrapper.as_ref()?.client.clone()
    }

    /// When the wrapper does something again, if it waits now.
    pub(in crate::simulation) fn thaws(&self) -> Option<Instant> {
        self.wrapper.as_ref().filter(|wrapper| wrapper.is_frozen()).map(|wrapper| wrapper.frozen_until)
    }
}

/// Starts the program of the wrapper with this number. It may be killed before.
fn start(seen: &Seen, first: First, saved: Option<Vec<u8>>) {
    let Some((policy, boot, unit)) = seen.world.now().hosts.get(&seen.instance).map(|host| {
        let unit = match &host.owner {
            Owner::Unit(unit) => Some(unit.is_closed),
            Owner::Child(_) => None,
        };
        (host.policy.clone(), host.boot(), unit)
    }) else {
        return;
    };
    let observed = seen.clone();
    let settings = Settings {
        policy,
        boot,
        surroundings: Surroundings(seen.clone()),
        file: seen.clone(),
        saved,
        runner: Arc::new(seen.clone()),
        observer: Box::new(move |event, step| {
            observed.world.now().stepped(&observed.instance, observed.number, event, step);
        }),
    };
    let program = match unit {
        None => Program::of_child(seen.clone(), first, settings),
        Some(is_closed) => {
            let name = "gitlab-runner.service".parse().expect("a name");
            Program::of_unit(seen.clone(), is_closed, (name, "/run/grit-wrapper".into()), first, settings)
        }
    };
    let program = program.expect("a wrapper that starts");
    let mut now = seen.world.now();
    let Some(wrapper) = now.wrapper(&seen.instance, seen.number) else { return };
    wrapper.supervision = program.client.supervisor.now();
    wrapper.client = Some(program.client.clone());
    now.has_continued(&seen.instance);
    let Some(wrapper) = now.wrapper(&seen.instance, seen.number) else { return };
    for (stream, uid) in std::mem::take(&mut wrapper.backlog) {
        program.client.connect(stream, uid);
    }
    let supervisor = {
        let seen = seen.clone();
        let task = program.supervisor;
        async move {
            let _end = task.await;
            seen.world.now().wrapper_leaves(&seen.instance, seen.number);
        }
    };
    let probed = {
        let (seen, mut client) = (seen.clone(), program.client);
        async move {
            while client.probed().await {
                seen.world.now().probed(&seen.instance, seen.number, client.level());
            }
        }
    };
    let tasks = [
        tokio::spawn(Alive::new(seen.clone(), supervisor)).abort_handle(),
        tokio::spawn(Alive::new(seen.clone(), program.others)).abort_handle(),
        tokio::spawn(Alive::new(seen.clone(), probed)).abort_handle(),
    ];
    wrapper.tasks.extend(tasks);
}

/// A part of a process, which is polled while the process runs.
struct Alive<F> {
    seen: Seen,
    frozen: Alarm,
    work: Pin<Box<F>>,
}

impl<F> Alive<F> {
    fn new(seen: Seen, work: F) -> Self {
        Self { seen, frozen: Alarm::default(), work: Box::pin(work) }
    }
}

impl<F: Future<Output = ()>> Future for Alive<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let frozen_until = {
                let mut now = this.seen.world.now();
                let Some(wrapper) = now.wrapper(&this.seen.instance, this.seen.number) else {
                    // It was killed.
                    return Poll::Ready(());
                };
                wrapper.is_frozen().then_some(wrapper.frozen_until)
            };
            let Some(until) = frozen_until else { return this.work.as_mut().poll(context) };
            ready!(this.frozen.poll_until(until, context));
        }
    }
}

impl Inner {
    pub(in crate::simulation) fn wrapper(&mut self, instance: &str, number: u32) -> Option<&mut Wrapper> {
        self.hosts.get_mut(instance)?.wrapper.as_mut().filter(|wrapper| wrapper.number == number)
    }

    pub(super) fn number(&self, instance: &str) -> u32 {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        wrapper.map_or(0, |wrapper| wrapper.number)
    }

    /// Starts the process of the wrapper that the host has now.
    pub(super) fn program_starts(&mut self, instance: &str, first: First, saved: Option<Vec<u8>>) {
        let Some(world) = self.world.upgrade() else { return };
        let seen = Seen { world, instance: instance.to_owned(), number: self.number(instance) };
        // A task of its own: the program looks at the world.
        tokio::spawn(async move { start(&seen, first, saved) });
    }

    /// A wrapper process does something that others can see. It may be killed before.
    pub(super) fn operates(&mut self, instance: &str, number: u32) -> Result<(), Killed> {
        if self.wrapper(instance, number).is_none() {
            return Err(Killed);
        }
        let Some(host) = self.hosts.get_mut(instance) else { return Err(Killed) };
        match &mut host.kill_in {
            Some(0) => {
                self.kill_wrapper(instance, "is killed in the middle of its work");
                Err(Killed)
            }
            Some(steps) => {
                *steps -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The only thread of the wrapper waits for this time.
    pub(super) fn freeze(&mut self, instance: &str, number: u32, time: Duration) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        let until = Instant::now() + time;
        wrapper.frozen_until = until.max(wrapper.frozen_until);
        let until = wrapper.frozen_until;
        self.at(instance, until, Happening::Host(Happens::Thaws { wrapper: number }));
    }

    /// What the thread has waited for follows.
    pub(super) fn thaws(&mut self, instance: &str, number: u32) {
        let Some(wrapper) = self.wrapper(instance, number).filter(|wrapper| !wrapper.is_frozen()) else {
            return;
        };
        for change in std::mem::take(&mut wrapper.later) {
            match change {
                Later::Written(text) => self.file_is_written(instance, text),
                Later::Closed(closed) => self.gate_is_changed(instance, closed),
            }
        }
        self.is_free(instance);
    }

    pub(super) fn is_free(&mut self, instance: &str) {
        if let Some(host) = self.hosts.get_mut(instance) {
            host.free_since = Some(Instant::now());
        }
    }

    /// `StateFile::replace`. Returns whether it succeeds.
    pub(super) fn writes(&mut self, instance: &str, number: u32, text: &[u8]) -> bool {
        let time = self.random.millis(0, 2_000);
        let Some(host) = self.hosts.get_mut(instance) else { return false };
        let (works, is_slow) = (host.file_works(), Instant::now() < host.slow_until);
        let Some(wrapper) = host.wrapper.as_mut() else { return false };
        if !works {
            wrapper.written = None;
            return false;
        }
        wrapper.written = Some(wrapper.supervision.clone());
        if is_slow && !wrapper.is_frozen() {
            self.trace.count("slow write of the state file");
            self.freeze(instance, number, time);
        }
        match self.wrapper(instance, number) {
            Some(wrapper) if wrapper.is_frozen() => wrapper.later.push(Later::Written(text.to_vec())),
            _ => self.file_is_written(instance, text.to_vec()),
        }
        true
    }

    fn file_is_written(&mut self, instance: &str, text: Vec<u8>) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let file = if text.is_empty() { File::Empty } else { File::Saved(text) };
        if matches!(file, File::Empty) {
            // The wrapper exits, and has nothing to continue.
            host.promise.wrapper_leaves();
        }
        host.older_file = std::mem::replace(&mut host.file, file);
        host.file_lost = None;
        host.saved_promise = host.promise.clone();
        if let Some(facts) = &mut host.facts {
            facts.observed_saved = facts.observed;
        }
    }

    /// A program of the host sends a request to the wrapper.
    pub(super) fn ask(&mut self, instance: &str, ask: Ask) {
        self.ask_then(instance, ask, |_, _, _| {});
    }

    /// The same; `then` has the answer. After the end of the wrapper there is none.
    pub(super) fn ask_then(
        &mut self,
        instance: &str,
        ask: Ask,
        then: impl FnOnce(&mut Inner, &str, Result<(), HandleError>) + Send + 'static,
    ) {
        let Some(world) = self.world.upgrade() else { return };
        let (instance, number) = (instance.to_owned(), self.number(instance));
        let client = self.hosts.get(&instance).and_then(Host::client);
        tokio::spawn(async move {
            let answer = match client {
                Some(client) => {
                    let supervisor = client.supervisor;
                    match ask {
                        Ask::Stop(stop) => supervisor.stop(stop).await,
                        Ask::Leave(stop) => supervisor.leave(stop).await,
                        Ask::Cancel => supervisor.cancel(Cancel::default()).await,
                        Ask::Start => supervisor.start().await,
                        Ask::Reload => supervisor.reload().await,
                    }
                }
                None => Err(HandleError::Ended),
            };
            let is_there = answered(&world, &instance, number, answer.is_ok()).await;
            let answer = answer.map(drop).and(if is_there { Ok(()) } else { Err(HandleError::Ended) });
            then(&mut world.now(), &instance, answer);
        });
    }

    /// `Surroundings::send`.
    pub(super) fn callback_sent(
        &mut self,
        instance: &str,
        number: u32,
        callback: Callback,
        completion: Completion,
    ) {
        self.trace.count("callback sent");
        // `daemon::callback` repeats it for up to an hour.
        let limit = if self.random.percent(50) { 600_000 } else { 20_000 };
        let delay = self.random.millis(5, limit);
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let runs = host.runner.as_ref().map(|runner| runner.pid);
        let of = host.callbacks.iter_mut().find(|of| of.callback == callback).map(|of| {
            of.is_sent = true;
            of.pid
        });
        let Some(wrapper) = host.wrapper.as_mut().filter(|wrapper| wrapper.number == number) else { return };
        wrapper.callbacks.push((callback.clone(), completion));
        self.later(instance, delay, Happening::Host(Happens::Called { wrapper: number, callback }));
        if of.flatten().is_some_and(|pid| Some(pid) == runs) {
            self.violation(instance, "a callback is sent before the exit of the runner");
        }
    }

    /// The record of callbacks is lost, or the wrapper has ended: nothing was promised that had no answer.
    pub(super) fn forget_callbacks(&mut self, instance: &str, is_lost: bool) {
        if let Some(host) = self.hosts.get_mut(instance) {
            host.callbacks.retain(|of| of.is_promised && !is_lost);
        }
    }

    /// At the end of a run: each callback of a drain that has ended was sent.
    pub(super) fn check_callbacks(&mut self, instance: &str) {
        let Some(host) = self.hosts.get(instance) else { return };
        let runs = host.runner.as_ref().map(|runner| runner.pid);
        let is_missing =
            |of: &&OfDrain| of.is_promised && !of.is_sent && (of.pid.is_none() || of.pid != runs);
        if let Some(of) = host.callbacks.iter().find(is_missing) {
            let what = format!("the callback of a drain of runner {:?} was never sent", of.pid);
            self.violation(instance, what);
        }
    }

    /// This callback of the wrapper is finished, or the first one.
    pub(super) fn callback_ends(&mut self, instance: &str, number: u32, callback: Option<&Callback>) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        let is_it = |sent: &(Callback, Completion)| callback.is_none_or(|callback| sent.0 == *callback);
        if let Some(at) = wrapper.callbacks.iter().position(is_it) {
            let (_, completion) = wrapper.callbacks.remove(at);
            tokio::spawn(completion.report());
        }
    }
}

impl Inner {
    /// The wrapper has accepted a request. It answers when it has done what follows.
    pub(super) fn answers_later(&mut self, instance: &str, number: u32) {
        let client = self.hosts.get(instance).and_then(Host::client);
        let (Some(world), Some(client)) = (self.world.upgrade(), client) else { return };
        let instance = instance.to_owned();
        tokio::spawn(async move {
            if client.supervisor.ping().await.is_ok() {
                answered(&world, &instance, number, true).await;
            }
        });
    }
}

/// The supervisor with this number has an answer to the last request. It leaves the process after a slow write. Returns whether it does.
pub(in crate::simulation) async fn answered(
    world: &World,
    instance: &str,
    number: u32,
    is_accepted: bool,
) -> bool {
    loop {
        let thaws = {
            let mut now = world.now();
            let Some(host) = now.hosts.get_mut(instance) else { return false };
            if host.wrapper.as_ref().is_none_or(|wrapper| wrapper.number != number) {
                return false;
            }
            match host.thaws() {
                Some(until) => until,
                None => {
                    if is_accepted {
                        host.is_answered = true;
                        host.callbacks.iter_mut().for_each(|callback| callback.is_promised = true);
                    }
                    return true;
                }
            }
        };
        sleep_until(thaws).await;
    }
}

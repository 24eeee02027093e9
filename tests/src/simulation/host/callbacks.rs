//! The callbacks of the drains of a host.

use grit_wrapper::supervise::{Callback, Event, State};

use super::{
    super::world::{Happening, Inner},
    Happens, Wrapper,
};

impl Inner {
    pub(super) fn send_callback(&mut self, instance: &str, callback: Callback) {
        self.trace.count("callback sent");
        // `daemon::callback` repeats it for up to an hour.
        let limit = if self.random.percent(50) { 600_000 } else { 20_000 };
        let (delay, wrapper) = (self.random.millis(5, limit), self.number(instance));
        self.later(instance, delay, Happening::Host(Happens::Called { wrapper, callback }));
    }

    /// A callback that was sent and is not finished is finished now.
    pub(super) fn callback_ends(&mut self, instance: &str) {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let Some(callback) = wrapper.and_then(|wrapper| wrapper.sent_callbacks().first().cloned()) else {
            return;
        };
        let _answer = self.deliver(instance, Event::CallbackFinished(callback));
    }
}

impl Wrapper {
    /// `Task::unfinished_callbacks`.
    pub(super) fn sent_callbacks(&self) -> Vec<Callback> {
        let past = self.supervision.last_stop.iter().flat_map(|past| &past.stop.callbacks);
        let due = match &self.supervision.state {
            State::Exited { stop: Some(stop), .. } => &stop.callbacks[..],
            _ => &[],
        };
        due.iter().chain(past).cloned().collect()
    }
}

//! Which hosts this process has reached.
//!
//! A host at which nothing responds can be gone, or the network of this machine has failed, for example because its VPN is not connected. Only the
//! response of another host shows that the network works. So a drain whose host does not respond waits for the other drains of this process, and for
//! no longer than that. The drains that fail also wait, so that one error has the command for all of their hosts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use grit_ssh::HostPort;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::error::ClientError;

/// How long the response of a host shows that the network works: until the failures of another host begin.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// The maximum wait for other drains.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all clients of one provider block have reached. A provider that is configured again starts anew.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contacts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    /// When each host has responded last.
    reached: BTreeMap<String, Instant>,
    /// The hosts of the drains that have not received a response yet.
    waiting: BTreeMap<u64, String>,
    drains: u64,
    /// The identifiers of instances that can be gone.
    missing: BTreeSet<String>,
    /// The runner manager whose error has the last command, and the number of identifiers in it.
    command: Option<(String, usize)>,
}

/// The command of an error that treats instances as terminated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Offer {
    /// All instances that can be gone. `is_alone`: this process has reached no host.
    Command { instances: Vec<String>, is_alone: bool },
    /// The error of this runner manager has it.
    InErrorOf(String),
}

impl Contacts {
    /// The contact to one host.
    pub(crate) fn to(&self, address: &HostPort) -> Contact {
        Contact { contacts: self.clone(), host: address.canonical().to_string() }
    }

    /// Waits until each drain of this process has a response or has failed.
    pub(crate) async fn settled(&self, until: Instant) {
        self.wait(until, |_| false).await;
    }

    /// The command for the error of `manager`, unless an earlier error has the same.
    pub(crate) fn offer(&self, manager: &str) -> Offer {
        let mut seen = self.0.seen.lock();
        let count = seen.missing.len();
        match &seen.command {
            Some((earlier, known)) if *known == count => Offer::InErrorOf(earlier.clone()),
            _ => {
                seen.command = Some((manager.to_owned(), count));
                let instances = seen.missing.iter().cloned().collect();
                Offer::Command { instances, is_alone: seen.reached.is_empty() }
            }
        }
    }

    /// Whether `is_enough`, at the latest when no drain waits any more, or at `until`.
    async fn wait(&self, until: Instant, is_enough: impl Fn(&Seen) -> bool) -> bool {
        let until = until.min(Instant::now() + PATIENCE);
        loop {
            let changed = self.0.changed.notified();
            {
                let seen = self.0.seen.lock();
                if is_enough(&seen) {
                    return true;
                } else if seen.waiting.is_empty() {
                    return false;
                }
            }
            if timeout_at(until, changed).await.is_err() {
                return is_enough(&self.0.seen.lock());
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        let result = change(&mut self.0.seen.lock());
        self.0.changed.notify_waiters();
        result
    }
}

/// The contact to one host.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    contacts: Contacts,
    host: String,
}

impl Contact {
    /// A drain of this host begins.
    pub(crate) fn begin(&self) -> Waiting {
        let number = self.contacts.change(|seen| {
            seen.drains += 1;
            seen.waiting.insert(seen.drains, self.host.clone());
            seen.drains
        });
        Waiting { contacts: self.contacts.clone(), number }
    }

    /// Notes what the result of a call shows.
    pub(crate) fn noted<T>(&self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        if result.as_ref().map_or_else(ClientError::is_of_verified_host, |_| true) {
            self.contacts.change(|seen| {
                seen.reached.insert(self.host.clone(), Instant::now());
                seen.waiting.retain(|_, host| *host != self.host);
            });
        }
        result
    }

    /// Whether another host has responded since the failures of this one began, or shortly before. Waits for the other drains.
    pub(crate) async fn is_network_proved(&self, failing_since: Instant, until: Instant) -> bool {
        let is_recent = |at: &Instant| *at + FRESH >= failing_since;
        let other = |seen: &Seen| seen.reached.iter().any(|(host, at)| *host != self.host && is_recent(at));
        self.contacts.wait(until, other).await
    }

    /// The instance of this host can be gone. An error then has its identifier.
    pub(crate) fn is_missing(&self, identifier: &str) {
        self.contacts.change(|seen| seen.missing.insert(identifier.to_owned()));
    }

    /// Its drain has succeeded.
    pub(crate) fn is_not_missing(&self, identifier: &str) {
        self.contacts.change(|seen| seen.missing.remove(identifier));
    }
}

/// A drain that has not received a response yet. Dropping it ends the wait of others for it.
#[derive(Debug)]
pub(crate) struct Waiting {
    contacts: Contacts,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.contacts.change(|seen| seen.waiting.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    fn contact(contacts: &Contacts, host: &str) -> Contact {
        contacts.to(&host.parse().unwrap())
    }

    fn responds(contact: &Contact) {
        contact.noted(Ok(())).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_recent_response_of_another_host_proves_the_network() {
        let contacts = Contacts::default();
        let [a, b] = ["a:22", "b:22"].map(|host| contact(&contacts, host));
        let late = || Instant::now() + Duration::from_secs(3600);
        assert!(!a.is_network_proved(Instant::now(), late()).await, "nothing was reached");
        responds(&a);
        assert!(!a.is_network_proved(Instant::now(), late()).await, "the host itself");
        responds(&b);
        assert!(a.is_network_proved(Instant::now(), late()).await);
        // The VPN was disconnected during a drain of hours.
        advance(FRESH + Duration::from_secs(1)).await;
        assert!(!a.is_network_proved(Instant::now(), late()).await);
        let refused = ClientError::NoAnswer {
            method: "GetStatus",
            limit: Duration::from_secs(1),
            route: Box::new(crate::client::example_route()),
        };
        assert!(b.noted(Err::<(), _>(refused)).is_err());
        assert!(a.is_network_proved(Instant::now(), late()).await, "its SSH server responds");
    }

    #[tokio::test(start_paused = true)]
    async fn drain_without_response_waits_for_other_drains() {
        let contacts = Contacts::default();
        let [a, b, c] = ["a:22", "b:22", "c:22"].map(|host| contact(&contacts, host));
        let start = Instant::now();
        let (waiting, fails) = (b.begin(), c.begin());
        let (proved, (), ()) = tokio::join!(
            a.is_network_proved(start, start + Duration::from_secs(3600)),
            async {
                sleep(Duration::from_secs(3)).await;
                drop(fails);
            },
            async {
                sleep(Duration::from_secs(7)).await;
                responds(&b);
            }
        );
        assert_eq!((proved, start.elapsed().as_secs()), (true, 7));
        drop(waiting);
        // For no longer than this, and not beyond its timeout.
        let _silent = c.begin();
        for (limit, waited) in [(3600, PATIENCE.as_secs()), (4, 4)] {
            let start = Instant::now();
            contacts.settled(start + Duration::from_secs(limit)).await;
            assert_eq!(start.elapsed().as_secs(), waited);
        }
    }

    #[test]
    fn one_error_has_the_command_for_all_instances() {
        let contacts = Contacts::default();
        let command = |instances: &[&str], is_alone| {
            let instances = instances.iter().map(|id| (*id).to_owned()).collect();
            Offer::Command { instances, is_alone }
        };
        for id in ["i-2", "i-1"] {
            contact(&contacts, "a:22").is_missing(id);
        }
        assert_eq!(contacts.offer("m2"), command(&["i-1", "i-2"], true));
        assert_eq!(contacts.offer("m1"), Offer::InErrorOf("m2".to_owned()));
        // A later one, of a drain that Terraform starts when another has ended.
        contact(&contacts, "b:22").is_missing("i-3");
        responds(&contact(&contacts, "c:22"));
        assert_eq!(contacts.offer("m3"), command(&["i-1", "i-2", "i-3"], false));
    }
}

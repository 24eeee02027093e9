//! A runner manager, resolved once: its addresses, its login, and its identity.

use std::fmt;

use grit_plugin::schema::AttributePath;
use grit_ssh::{AddressError, HostPort, Selectors, Target, WrapperAddress};
use serde::{Deserialize, Serialize};

use crate::client::{Client, Clients, Contact, Contacts};

/// How evidence was received at a TCP address, where any user of the host can respond while the wrapper does not run.
pub(crate) const UNVERIFIED_PEER: &str = "over TCP, not verified";

/// The wrapper that a connection to a runner manager reaches. Equal values are the same wrapper.
///
/// It is the canonical text of the host and the wrapper address, with the values that select the host besides them (see [`Selectors`]): an SSH
/// gateway can select it by the user, and a command by a placeholder. Private data stores it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct WrapperIdentity(String);

impl WrapperIdentity {
    /// The only place where an identity is made. The values are the name and the id of the instance, and the user; those that select no host do not
    /// count.
    pub(crate) fn new(
        address: &HostPort,
        wrapper: &WrapperAddress,
        selectors: Selectors,
        [instance_name, instance_id, username]: [Option<&str>; 3],
    ) -> Self {
        let mut text = format!("{} {wrapper}", address.canonical());
        let values = [
            (selectors.instance_name, instance_name),
            (selectors.instance_id, instance_id),
            (selectors.username, username),
        ];
        for (_, value) in values.iter().filter(|(selects, _)| *selects) {
            text += &format!(" {:?}", value.unwrap_or_default());
        }
        Self(text)
    }

    #[cfg(test)]
    pub(crate) fn example(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for WrapperIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path of a runner manager in the attribute `runner_managers`.
pub(crate) fn at(key: &str) -> AttributePath {
    AttributePath::new("runner_managers").key(key.to_owned())
}

/// All that identifies a runner manager, as far as it is known in a plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identities {
    /// `None` while an address, or a value that selects the host, is unknown.
    pub(crate) wrapper: Option<WrapperIdentity>,
    /// The wrapper address with each id of the instance.
    pub(crate) instances: Vec<String>,
}

impl Identities {
    /// Those of a runner manager whose wrapper alone is of interest.
    pub(crate) fn of(wrapper: WrapperIdentity) -> Self {
        Self { wrapper: Some(wrapper), instances: Vec::new() }
    }

    /// Whether the two have the wrapper in common, or the instance and the address of the wrapper there.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let is_same_wrapper = self.wrapper.is_some() && self.wrapper == other.wrapper;
        is_same_wrapper || self.instances.iter().any(|instance| other.instances.contains(instance))
    }
}

/// A runner manager whose values are known.
#[derive(Debug, Clone)]
pub(crate) struct Manager {
    /// Its name in messages: the key in its map, or the name of its instance.
    pub(crate) name: String,
    pub(crate) identity: WrapperIdentity,
    target: Target,
    clients: Clients,
    contacts: Contacts,
}

/// An address that is missing or malformed: it was unknown at plan, or the state was edited.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{attribute}`: {problem}")]
pub struct InvalidManager {
    pub attribute: &'static str,
    pub problem: AddressError,
}

impl Manager {
    /// `identity`: of the same values as `target`.
    pub(crate) fn new(
        target: Target,
        identity: WrapperIdentity,
        clients: Clients,
        contacts: Contacts,
    ) -> Self {
        Self { name: target.manager.clone(), identity, target, clients, contacts }
    }

    /// A client of its wrapper. It opens no connection before its first call.
    pub(crate) fn client(&self) -> Client {
        self.clients.client(&self.target, self.contact())
    }

    /// The contact to its host.
    pub(crate) fn contact(&self) -> Contact {
        self.contacts.to(&self.target.address)
    }

    /// Whether the kernel protects the address of the wrapper, so that no other user of the host can respond there.
    pub(crate) fn has_protected_address(&self) -> bool {
        self.target.wrapper_address.is_protected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str, selectors: Selectors, id: Option<&str>) -> WrapperIdentity {
        let (address, wrapper) = (address.parse().unwrap(), "unix:///w.sock".parse().unwrap());
        WrapperIdentity::new(&address, &wrapper, selectors, [Some("m1"), id, Some("deploy")])
    }

    #[test]
    fn notations_of_one_host_have_one_identity() {
        let plain = |address| of(address, Selectors::default(), Some("i-1"));
        assert_eq!(plain("Host-A.example").to_string(), "host-a.example:22 unix:///w.sock");
        assert_eq!(plain("host-a.example:22"), plain("Host-A.example"));
        assert_eq!(plain("[2001:DB8:0::7]:22"), plain("2001:db8::7"));
        assert_ne!(plain("host-a.example:2222"), plain("host-a.example"));
    }

    #[test]
    fn identity_has_values_that_select_the_host() {
        let by_id = Selectors { instance_id: true, ..Selectors::default() };
        assert_ne!(of("h", by_id, Some("i-1")), of("h", by_id, Some("i-2")));
        assert_ne!(of("h", by_id, Some("i-1")), of("h", by_id, None));
        let by_name = Selectors { instance_name: true, ..Selectors::default() };
        assert_eq!(of("h", by_name, Some("i-1")), of("h", by_name, Some("i-2")));
    }
}

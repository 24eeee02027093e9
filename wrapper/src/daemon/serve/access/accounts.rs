//! Users and groups of this host, from `/etc/passwd` and `/etc/group`. Users of a directory service must be given by UID or GID.

use std::{fs, str::FromStr};

use thiserror::Error;

/// A user, or all members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserOrGroup {
    User(u32),
    /// The GID, and the users that `/etc/group` lists as members. Users with this primary group are not listed there.
    Group {
        gid: u32,
        members: Vec<u32>,
    },
}

/// The user or group does not exist.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnknownAccount {
    #[error("user {0:?} does not exist on this host")]
    User(String),
    #[error("group {0:?} does not exist on this host")]
    Group(String),
}

impl UserOrGroup {
    pub(super) fn is(&self, uid: u32, gid: u32) -> bool {
        match self {
            Self::User(user) => *user == uid,
            Self::Group { gid: group, members } => *group == gid || members.contains(&uid),
        }
    }
}

impl FromStr for UserOrGroup {
    type Err = UnknownAccount;

    /// `alice`, `1000`, `@admins` or `@100`.
    fn from_str(text: &str) -> Result<Self, UnknownAccount> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        resolve(text, &read("/etc/passwd"), &read("/etc/group"))
    }
}

/// The GID of a group, by name or GID.
pub(crate) fn group_id(group: &str) -> Result<u32, UnknownAccount> {
    match format!("@{group}").parse()? {
        UserOrGroup::Group { gid, .. } => Ok(gid),
        UserOrGroup::User(_) => Err(UnknownAccount::Group(group.to_owned())),
    }
}

/// The name of a user, or the UID if it has no name.
pub(crate) fn user_name(uid: u32) -> String {
    name(&fs::read_to_string("/etc/passwd").unwrap_or_default(), uid)
}

/// The first field of the line whose third field is `number`.
fn name(file: &str, number: u32) -> String {
    let number = number.to_string();
    let mut lines = file.lines().map(|line| line.split(':'));
    let found = lines.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1) == Some(number.as_str())).then(|| name.to_owned())
    });
    found.unwrap_or(number)
}

fn resolve(text: &str, passwd: &str, group: &str) -> Result<UserOrGroup, UnknownAccount> {
    let Some(name) = text.strip_prefix('@') else {
        let uid = text.parse().ok().or_else(|| number(passwd, text));
        return uid.map(UserOrGroup::User).ok_or_else(|| UnknownAccount::User(text.to_owned()));
    };
    let Some(gid) = name.parse().ok().or_else(|| number(group, name)) else {
        return Err(UnknownAccount::Group(name.to_owned()));
    };
    let line = group.lines().find(|line| line.split(':').nth(2) == Some(gid.to_string().as_str()));
    let names = line.and_then(|line| line.split(':').nth(3)).unwrap_or_default();
    let members = names.split(',').filter_map(|name| number(passwd, name)).collect();
    Ok(UserOrGroup::Group { gid, members })
}

/// The third field of the line whose first field is `name`.
fn number(file: &str, name: &str) -> Option<u32> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_resolve_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:/bin/sh\nbroken\n";
        let group = "root:x:0:\nadmins:x:100:alice,nobody\nodd:x:many:\n";
        let resolve = |text| resolve(text, passwd, group);
        assert_eq!(resolve("alice"), Ok(UserOrGroup::User(1000)));
        assert_eq!(resolve("77"), Ok(UserOrGroup::User(77)));
        assert_eq!(resolve("carol"), Err(UnknownAccount::User("carol".to_owned())));
        let admins = resolve("@admins").unwrap();
        assert_eq!(admins, resolve("@100").unwrap());
        assert!(admins.is(1000, 1000) && admins.is(1001, 100) && !admins.is(1002, 1002));
        assert_eq!(name(passwd, 1001), "bob");
        assert_eq!(name(passwd, 1002), "1002");
        assert_eq!(resolve("@odd"), Err(UnknownAccount::Group("odd".to_owned())));
    }
}

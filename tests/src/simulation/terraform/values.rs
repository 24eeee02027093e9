//! Values in Terraform's encoding.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::schema::Number;
use grit_proto::tfplugin6 as pb;

use crate::dynamic::Dynamic;

const MANAGER: &str = "username ssh_key_pem instance_id host_key";
const DRAIN: &str = "mode on_timeout on_unreachable on_lost_jobs reason retry timeouts";
const HEALTH: &str = "level min_jobs stable_for expected_version start_if_stopped retry \
                      triggers timeouts started_drains managers status";
const SHUTDOWN: &str = "id runner_managers wait triggers timeouts status managers mode on_timeout on_unreachable \
                        on_lost_jobs reason retry";
const ACTION: &str = "mode reason wait timeouts";
const PROVIDER: &str = "ssh gitlab retry max_parallel";

/// The members of an object that are not null.
pub(super) type Members = BTreeMap<String, Dynamic>;

pub(super) fn text(text: &str) -> Dynamic {
    Dynamic::Text(text.to_owned())
}

pub(super) fn members<const N: usize>(members: [(&str, Dynamic); N]) -> Members {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn object(nulls: &str, members: Members) -> Dynamic {
    let nulls = nulls.split_whitespace().map(|name| (name.to_owned(), Dynamic::Null));
    Dynamic::Object(nulls.chain(members).collect())
}

pub(super) fn manager(name: &str, address: Dynamic) -> Dynamic {
    manager_of(name, address, Dynamic::Null)
}

/// With `instance_id`.
pub(super) fn manager_of(name: &str, address: Dynamic, instance: Dynamic) -> Dynamic {
    object(
        MANAGER,
        members([
            ("instance_id", instance),
            ("instance_name", text(name)),
            ("address", address),
            ("wrapper_address", text("unix:///w.sock")),
        ]),
    )
}

pub(super) fn drain(more: Members) -> Dynamic {
    object(DRAIN, more)
}

pub(super) fn health(more: Members) -> Dynamic {
    object(HEALTH, more)
}

pub(super) fn shutdown(more: Members) -> Dynamic {
    object(SHUTDOWN, more)
}

/// The configuration of the action `grit_drain`.
pub(super) fn action(more: Members) -> Dynamic {
    object(ACTION, more)
}

/// An object with the given members alone.
pub(super) fn exactly<const N: usize>(all: [(&str, Dynamic); N]) -> Dynamic {
    Dynamic::Object(members(all))
}

pub(super) fn number(number: u64) -> Dynamic {
    Dynamic::Number(Number::from(number))
}

pub(super) fn seconds(duration: Duration) -> Dynamic {
    text(&format!("{}s", duration.as_secs()))
}

/// `retry`.
pub(super) fn retry(attempts: Option<u32>) -> Dynamic {
    let Some(attempts) = attempts else { return Dynamic::Null };
    exactly([("attempts", number(attempts.into()))])
}

/// The provider block. `gitlab`: the URL and the token.
pub(super) fn provider(gitlab: Option<(&str, &str)>) -> Dynamic {
    let gitlab = gitlab.map(|(url, token)| {
        let object = members([("url", text(url)), ("token", text(token)), ("ca_certificate", Dynamic::Null)]);
        ("gitlab".to_owned(), Dynamic::Object(object))
    });
    object(PROVIDER, gitlab.into_iter().collect())
}

/// A member of an object.
pub(super) fn member<'a>(object: &'a Dynamic, name: &str) -> &'a Dynamic {
    match object {
        Dynamic::Object(members) => members.get(name).unwrap_or(&Dynamic::Null),
        _ => &Dynamic::Null,
    }
}

/// What Terraform proposes: the configuration, with the computed values of the prior object.
pub(super) fn proposed(config: &Dynamic, prior: &Dynamic, computed: &[&str]) -> Dynamic {
    let Dynamic::Object(mut members) = config.clone() else { return config.clone() };
    for name in computed {
        let is_null = members.get(*name).is_none_or(|value| *value == Dynamic::Null);
        if is_null {
            members.insert((*name).to_owned(), member(prior, name).clone());
        }
    }
    Dynamic::Object(members)
}

pub(super) fn message(value: &Dynamic) -> Option<pb::DynamicValue> {
    let msgpack = rmp_serde::to_vec_named(value).expect("a value can be encoded");
    Some(pb::DynamicValue { msgpack, json: Vec::new() })
}

pub(super) fn decoded(message: Option<&pb::DynamicValue>) -> Dynamic {
    message.map_or(Dynamic::Null, |message| rmp_serde::from_slice(&message.msgpack).expect("a value"))
}

/// A value of the state, as the state file has it.
pub(super) fn json(value: &Dynamic) -> Vec<u8> {
    serde_json::to_vec(value).expect("a value without unknown parts")
}

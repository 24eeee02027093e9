//! All objects of the configuration language: schema, checks, and conversion to typed values.

mod agent;
pub(crate) mod computed;
pub(crate) mod contract;
pub(crate) mod drain;
pub(crate) mod enum_attribute;
pub(crate) mod gitlab;
pub(crate) mod manager;
pub(crate) mod number;
pub(crate) mod object;
pub(crate) mod observed;
mod private_key;
pub(crate) mod provider_block;
mod proxy_jump;
pub(crate) mod retry;
pub(crate) mod same_manager;
pub(crate) mod ssh;
mod ssh_checks;
pub(crate) mod text;
pub(crate) mod timeouts;

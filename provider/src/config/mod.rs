//! Every object of the configuration language, each in one file: its schema, its check with errors at the attribute's path, and how it
//! turns into what the layers below take.

pub(crate) mod enum_attribute;
pub(crate) mod manager;
pub(crate) mod number;
pub(crate) mod provider_block;
mod proxy_jump;
pub(crate) mod retry;
pub(crate) mod ssh;
mod ssh_checks;
pub(crate) mod text;
pub(crate) mod timeouts;

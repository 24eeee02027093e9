//! Every object of the configuration language, each in one file: its schema, its check with errors at the attribute's path, and how it
//! turns into what the layers below take.

pub mod enum_attribute;
pub mod manager;
pub mod number;
pub mod provider_block;
mod proxy_jump;
pub mod required;
pub mod retry;
mod ssh;
pub mod timeouts;

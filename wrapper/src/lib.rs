//! The wrapper: supervises one `gitlab-runner`, tells the truth about it, and stops it gracefully.
//!
//! `main` reads [`settings`] and hands them to [`run`], which tells the story from the first listener to the exit code. The parts:
//! [`listen`] binds and cleans up, [`service`] answers gRPC, [`supervisor`] decides, [`process`] deals with the platform, [`output`]
//! reads the end of a failed runner's log, [`callback`] tells others, [`counters`] counts.
//!
//! Linux only: what it promises about processes rests on pidfds and `/proc`.
#![cfg(target_os = "linux")]

pub mod access;
pub mod callback;
pub mod counters;
mod door;
pub mod health;
mod holder;
pub mod listen;
mod lock;
pub mod logging;
pub mod notify;
pub mod operator;
pub mod output;
mod parts;
pub mod process;
pub mod run;
pub mod service;
pub mod settings;
mod signals;
pub mod store;
pub mod supervisor;
mod trusted;
mod wall;
pub mod web;

//! Checks of configuration values without a connection. Reads files.

use std::path::Path;

pub use crate::command::template::doubtful_arguments;
use crate::{
    command::template::{Template, TemplateError},
    keys,
    keys::error::KeyError,
    secret::Secret,
    session, trust, user_files,
};
pub use trust::{check_known_hosts as known_hosts, check_pins as host_keys};

/// Checks a private key without its passphrase.
pub fn private_key(text: &Secret) -> Result<(), String> {
    keys::inspect(text).map_err(|error| key_problem(&error))
}

pub fn private_key_file(path: &Path) -> Result<(), String> {
    private_key(&read(path)?)
}

pub fn certificate_file(path: &Path) -> Result<(), String> {
    session::check_certificate(read(path)?.expose())
}

pub fn known_hosts_file(path: &Path) -> Result<(), String> {
    let text = user_files::read(path).map_err(|problem| unreadable(path, &problem))?;
    known_hosts(&text).map_err(|problem| format!("{}, {problem}", user_files::shown(path)))
}

/// A user name or a passphrase. A path of an existing file was not meant as such.
pub fn short_text(text: &str) -> Result<(), String> {
    if user_files::looks_like_path(text) && Path::new(text.trim()).is_file() {
        return Err("it is the path of a file; the variable must contain the value itself".to_owned());
    }
    Ok(())
}

pub fn host_authority(text: &str) -> Result<(), String> {
    trust::authority(text).map(drop)
}

/// The argument list of a command. The error has the index of the argument, if it is about one.
pub fn command(arguments: &[String]) -> Result<(), (Option<usize>, String)> {
    let problem = |error: TemplateError| (error.argument(), error.to_string());
    Template::parse(arguments).map(drop).map_err(problem)
}

fn read(path: &Path) -> Result<Secret, String> {
    user_files::read_text(path).map_err(|problem| unreadable(path, &problem))
}

fn unreadable(path: &Path, problem: &str) -> String {
    format!("{} cannot be read: {problem}", user_files::shown(path))
}

/// The problem without the name of the attribute, which the message contains already.
fn key_problem(error: &KeyError) -> String {
    match error {
        KeyError::Unusable { format, problem, .. } => format!("the key ({format}) cannot be used: {problem}"),
        error => error.to_string(),
    }
}

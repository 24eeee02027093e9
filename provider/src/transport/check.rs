//! What can be known to be wrong with options before anything is connected.

use crate::transport::{
    Secret, SshOptions, StrategyOptions,
    error::{InvalidOption, KeyError},
    proxy_command::invalid,
    ssh,
    template::Template,
    trust::HostTrust,
    user_files,
};
use std::path::{Path, PathBuf};

/// Everything that is wrong, in the order of the attributes.
pub(super) fn check(options: &SshOptions) -> Vec<InvalidOption> {
    let mut found = Vec::new();
    let mut note = |attribute: &str, problem: Option<String>| {
        found.extend(problem.map(|problem| InvalidOption { attribute: attribute.to_owned(), problem }));
    };
    let home = options.home.as_deref();
    let key = |text: &Secret| ssh::inspect_key(text).err().as_ref().map(key_problem);
    let certificate_file = |path: &PathBuf| match read(&user_files::expand(path, home)) {
        Ok(text) => ssh::read_certificate(text.expose()).err(),
        Err(problem) => Some(problem),
    };
    let key_file = |path: &PathBuf| match read(&user_files::expand(path, home)) {
        Ok(text) => key(&text),
        Err(problem) => Some(problem),
    };

    note("ssh.private_key", options.private_key.as_ref().and_then(key));
    note("ssh.private_key_path", options.private_key_path.as_ref().and_then(key_file));
    note("ssh.certificate_path", options.certificate_path.as_ref().and_then(certificate_file));
    if let StrategyOptions::ProxyJump(hops) = &options.strategy {
        for (index, hop) in hops.iter().enumerate() {
            let name = |attribute: &str| format!("ssh.proxy_jump[{index}].{attribute}");
            note(&name("private_key"), hop.private_key.as_ref().and_then(key));
            note(&name("private_key_path"), hop.private_key_path.as_ref().and_then(key_file));
            note(&name("certificate_path"), hop.certificate_path.as_ref().and_then(certificate_file));
            let pins = HostTrust::check_pins(&name("host_key"), hop.host_key.as_deref().unwrap_or_default());
            note(&name("host_key"), pins.err().map(|error| error.problem));
        }
    }
    let template = match &options.strategy {
        StrategyOptions::ProxyCommand(arguments) => Some(("proxy_command", arguments)),
        StrategyOptions::SshCommand(arguments) => Some(("ssh_command", arguments)),
        StrategyOptions::Direct | StrategyOptions::ProxyJump(_) => None,
    };
    if let Some((strategy, arguments)) = template
        && let Err(error) = Template::parse(arguments)
    {
        found.push(invalid(strategy, &error));
    }
    found.extend(HostTrust::check(&options.trust));
    found
}

fn read(path: &Path) -> Result<Secret, String> {
    user_files::read_text(path)
        .map_err(|problem| format!("{} cannot be read: {problem}", user_files::shown(path)))
}

/// The problem alone: the attribute stands before it.
fn key_problem(error: &KeyError) -> String {
    match error {
        KeyError::Unusable { format, problem, .. } => format!("the key ({format}) cannot be used: {problem}"),
        KeyError::TooCostly { asked, limit, .. } => format!(
            "the KDF cost of the key ({asked}) exceeds the limit ({limit}); re-encrypt it with `ssh-keygen -p -a 100 -f FILE`"
        ),
        error => error.to_string(),
    }
}

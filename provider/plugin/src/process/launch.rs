//! The settings of the process: environment and arguments.

use std::{ffi::OsString, path::PathBuf};

use thiserror::Error;
use tracing::level_filters::LevelFilter;

use super::logging;

/// The mark of a plugin host; not a secret.
const PLUGIN_COOKIE: (&str, &str) =
    ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");

const PROTOCOL_VERSION: &str = "6";

#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) caller: Caller,
    /// Directories for the socket, in order of preference.
    pub(super) folders: Vec<PathBuf>,
    pub(super) log_level: LevelFilter,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// Terraform or OpenTofu, with its client certificate in PEM format; none with TF_DISABLE_PLUGIN_TLS.
    Terraform { certificate: Option<String> },
    /// `--debug`: Terraform attaches later, without TLS.
    Developer,
}

/// Why this process does not serve.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error(
        "terraform-provider-{name} is a plugin that Terraform or OpenTofu starts; to debug it, run it with --debug."
    )]
    StartedByHand { name: String },
    #[error(
        "terraform-provider-{name} requires plugin protocol {PROTOCOL_VERSION}, but the caller supports only {offered}: use Terraform 1.6 or \
         newer, or OpenTofu."
    )]
    Protocol { name: String, offered: String },
}

impl Launch {
    /// `name` is the name of the provider.
    /// Fails if no plugin host started the process, or if its protocol version is not supported.
    pub(super) fn from_process(name: &str) -> Result<Self, Refusal> {
        Self::new(name, std::env::args_os().skip(1), |variable| std::env::var_os(variable))
    }

    fn new(
        name: &str,
        mut arguments: impl Iterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refusal> {
        let text = |key: &str| {
            variable(key).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
        };
        let caller = if arguments.any(|argument| argument == "--debug" || argument == "-debug") {
            Caller::Developer
        } else {
            if text(PLUGIN_COOKIE.0).as_deref() != Some(PLUGIN_COOKIE.1) {
                return Err(Refusal::StartedByHand { name: name.to_owned() });
            }
            let offered = text("PLUGIN_PROTOCOL_VERSIONS").unwrap_or_default();
            if !offered.split(',').any(|version| version.trim() == PROTOCOL_VERSION) {
                return Err(Refusal::Protocol { name: name.to_owned(), offered });
            }
            Caller::Terraform { certificate: text("PLUGIN_CLIENT_CERT") }
        };
        let folders = match variable("PLUGIN_UNIX_SOCKET_DIR").filter(|folder| !folder.is_empty()) {
            Some(folder) => vec![PathBuf::from(folder)],
            None => vec![
                variable("TMPDIR").filter(|folder| !folder.is_empty()).map_or("/tmp".into(), PathBuf::from),
                "/tmp".into(),
            ],
        };
        Ok(Self { caller, folders, log_level: logging::level(name, text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Launch, Refusal> {
        let find =
            |key: &str| environment.iter().find(|(name, _)| *name == key).map(|(_, value)| value.into());
        Launch::new("grit", arguments.iter().map(OsString::from), find)
    }

    #[test]
    fn cookie_and_protocol_identify_terraform() {
        let launch =
            launch(&[], &[PLUGIN_COOKIE, ("PLUGIN_PROTOCOL_VERSIONS", "5,6"), ("PLUGIN_CLIENT_CERT", "PEM")]);
        assert_eq!(launch.unwrap().caller, Caller::Terraform { certificate: Some("PEM".into()) });
    }

    #[test]
    fn empty_client_certificate_disables_tls() {
        let launch =
            launch(&[], &[PLUGIN_COOKIE, ("PLUGIN_PROTOCOL_VERSIONS", "6"), ("PLUGIN_CLIENT_CERT", "")]);
        assert_eq!(launch.unwrap().caller, Caller::Terraform { certificate: None });
    }

    #[test]
    fn launch_refusal_is_one_sentence() {
        for (environment, expected) in [
            (vec![], "is a plugin that Terraform or OpenTofu starts;"),
            (vec![(PLUGIN_COOKIE.0, "other")], "is a plugin that Terraform or OpenTofu starts;"),
            (vec![PLUGIN_COOKIE, ("PLUGIN_PROTOCOL_VERSIONS", "5")], "supports only 5"),
        ] {
            let refusal = launch(&[], &environment).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{refusal}");
            assert!(refusal.ends_with('.') && !refusal.contains('\n'), "{refusal}");
        }
    }

    #[test]
    fn debug_needs_no_cookie() {
        assert_eq!(launch(&["--debug"], &[]).unwrap().caller, Caller::Developer);
    }

    #[test]
    fn socket_dir_variable_overrides_other_dirs() {
        let asked = launch(&["--debug"], &[("PLUGIN_UNIX_SOCKET_DIR", "/run/x"), ("TMPDIR", "/t")]).unwrap();
        assert_eq!(asked.folders, [PathBuf::from("/run/x")]);
        let usual = launch(&["--debug"], &[("TMPDIR", "/t")]).unwrap();
        assert_eq!(usual.folders, [PathBuf::from("/t"), PathBuf::from("/tmp")]);
    }
}

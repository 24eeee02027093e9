//! `terraform output -json` in a directory.
//!
//! The command starts no provider and locks no state. Its environment is that of this process, which is Terraform's, without what belongs
//! to the current run alone ([`is_of_this_run`]).

use std::{ffi::OsStr, io, path::PathBuf, pin::pin, process::Stdio, time::Duration};

use grit_ssh::{
    SECRET_VARIABLES,
    child::{LastPart, describe, supervise},
    user_files,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::format::LARGEST;

/// The programs in their order on PATH.
const PROGRAMS: [&str; 2] = ["terraform", "tofu"];

/// How long the pipes are read after the command has exited, if a daemon that it started keeps them open.
const DAEMON_LIMIT: Duration = Duration::from_secs(1);

/// A directory with a Terraform configuration.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// The program; `None`: the first of `terraform` and `tofu` on PATH.
    pub(crate) program: Option<String>,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("{0}")]
    Directory(String),
    #[error("no program was found: {}", .0.join(", "))]
    NotFound(Vec<String>),
    #[error("{program} was not started")]
    NotStarted { program: String, problem: String },
    #[error("`{command}` failed: {status}")]
    Failed { command: String, status: String, stderr: String },
    #[error("`{0}` printed more than 64 MiB")]
    TooLarge(String),
}

impl Directory {
    /// What `output -json` prints. The process group ends at the latest when `end` fires.
    pub(super) async fn outputs(&self, end: &CancellationToken) -> Result<Vec<u8>, CommandError> {
        match tokio::fs::metadata(&self.path).await {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(CommandError::Directory("it is not a directory".to_owned())),
            Err(error) => return Err(CommandError::Directory(user_files::plain(&error))),
        }
        let programs = match &self.program {
            Some(program) => vec![program.clone()],
            None => PROGRAMS.map(str::to_owned).to_vec(),
        };
        for program in &programs {
            let child = match self.command(program).spawn() {
                Ok(child) => child,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let problem = user_files::plain(&error);
                    return Err(CommandError::NotStarted { program: program.clone(), problem });
                }
            };
            return wait(child, format!("{program} output"), end).await;
        }
        Err(CommandError::NotFound(programs))
    }

    fn command(&self, program: &str) -> Command {
        // A relative path is relative to the directory of this process, as those of Terraform are.
        let path = if program.contains('/') {
            std::path::absolute(program).unwrap_or_else(|_| program.into())
        } else {
            PathBuf::from(program)
        };
        let mut command = Command::new(path);
        command
            .args(["output", "-json", "-no-color"])
            .current_dir(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_run(name)) {
            command.env_remove(name);
        }
        command.envs([("TF_IN_AUTOMATION", "1"), ("TF_INPUT", "0"), ("CHECKPOINT_DISABLE", "1")]);
        command
    }
}

/// Variables that the command must not inherit: of the plugin protocol, settings that belong to the directory of the current run or would change the
/// output, and the provider's secrets. `TF_WORKSPACE` stays: it selects the workspace of every command in this environment. `TF_VAR_…` and
/// credentials stay: a backend, or OpenTofu's encryption, may need them.
fn is_of_this_run(name: &OsStr) -> bool {
    const NAMES: [&str; 5] =
        ["TF_REATTACH_PROVIDERS", "TF_DATA_DIR", "TF_CLI_ARGS", "TF_LOG", "GRIT_ASSUME_TERMINATED"];
    const STARTS: [&str; 4] = ["PLUGIN_", "TF_PLUGIN_MAGIC", "TF_CLI_ARGS_", "TF_LOG_"];
    let name = name.to_string_lossy();
    NAMES.iter().chain(&SECRET_VARIABLES).any(|known| *known == name)
        || STARTS.iter().any(|start| name.starts_with(start))
}

async fn wait(
    mut child: tokio::process::Child,
    command: String,
    end: &CancellationToken,
) -> Result<Vec<u8>, CommandError> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut output, last) = (Vec::new(), LastPart::default());
    let status = {
        let mut reading = pin!(async {
            tokio::join!(read(stdout, &mut output), async {
                if let Some(stderr) = stderr {
                    last.read(stderr).await;
                }
            })
        });
        let mut supervision = pin!(supervise(child, end.child_token()));
        tokio::select! {
            _read = &mut reading => supervision.await,
            status = &mut supervision => {
                // The end of the child ends its group, and with it the writers of the two pipes, except a daemon that left the group.
                let _all = timeout(DAEMON_LIMIT, reading).await;
                status
            }
        }
    };
    match status {
        Some(status) if status.success() && output.len() as u64 <= LARGEST => Ok(output),
        Some(status) if status.success() => Err(CommandError::TooLarge(command)),
        status => Err(CommandError::Failed {
            command,
            status: status.map_or_else(|| "unknown exit status".to_owned(), describe),
            stderr: last.text().unwrap_or_default(),
        }),
    }
}

/// Reads all that a command prints into `kept`. Of an output that is too large, `kept` gets more than [`LARGEST`] bytes, and not the rest.
async fn read(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let is_read = (&mut pipe).take(LARGEST + 1).read_to_end(kept).await.is_ok();
    if is_read {
        let _rest = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_current_run_are_not_inherited() {
        for name in [
            "TF_DATA_DIR",
            "TF_CLI_ARGS",
            "TF_CLI_ARGS_output",
            "TF_LOG",
            "TF_LOG_PATH",
            "PLUGIN_CLIENT_CERT",
            "TF_PLUGIN_MAGIC_COOKIE",
            "TF_REATTACH_PROVIDERS",
            "GRIT_SSH_PRIVATE_KEY",
            "GRIT_GITLAB_TOKEN",
        ] {
            assert!(is_of_this_run(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "TF_WORKSPACE",
            "TF_VAR_region",
            "TF_TOKEN_app_terraform_io",
            "TF_CLI_CONFIG_FILE",
            "TF_PLUGIN_CACHE_DIR",
            "TF_HTTP_PASSWORD",
            "TF_ENCRYPTION",
            "AWS_PROFILE",
        ] {
            assert!(!is_of_this_run(OsStr::new(name)), "{name}");
        }
    }
}

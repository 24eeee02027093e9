//! Texts for the data source `grit_deployment`.

use std::path::Path;

use grit_plugin::{Problem, Problems, schema::AttributePath};
use grit_ssh::user_files::shown;

use super::code::Code;
use crate::{
    deployment::{CommandError, Directory, FormatError, OUTPUT, ReadError, Source},
    duration::human,
};

const SUMMARY: &str = "Deployment cannot be read";

/// Explains why the output was not read.
pub(crate) fn not_read(source: &Source, error: &ReadError) -> Problem {
    let name = name(source);
    match error {
        ReadError::File(problem) => {
            invalid(format!("{name}: {problem}."), "Correct `state_path`, or the permissions of the file.")
        }
        ReadError::Format(error) => format(&name, source, error),
        ReadError::Command(error) => command(&name, error),
        ReadError::TimedOut(limit) => Problem::new(
            Code::TimedOut,
            "Deployment was not read in time",
            format!("{name} was not read within {}.", human(*limit)),
            "Check what delays the read: the server of the file, or the backend of the directory.",
        ),
        ReadError::Interrupted => Problem::new(
            Code::Interrupted,
            "Read was interrupted",
            format!("The read of {name} was cancelled. Nothing was changed."),
            "Run Terraform again.",
        ),
    }
}

/// The problems of a map that was read, each as an error about the attribute that names its source.
pub(crate) fn invalid_managers(source: &Source, problems: Problems, path: &AttributePath) -> Problems {
    let name = name(source);
    let named = |problem: Problem| Problem {
        happened: format!("Deployment in {name}: {}", problem.happened),
        path: path.clone(),
        ..problem
    };
    problems.into_iter().map(named).collect()
}

/// The source in a sentence.
fn name(source: &Source) -> String {
    match source {
        Source::File(path) => format!("`{}`", shown(path)),
        Source::Directory(Directory { path, .. }) => format!("`{}`", shown(Path::new(path))),
    }
}

fn format(name: &str, source: &Source, error: &FormatError) -> Problem {
    let happened = format!("{name}: {error}.");
    match error {
        FormatError::NotJson { line, column } if matches!(source, Source::Directory(_)) => invalid(
            format!("{name}: the output of the program is not only JSON (line {line}, column {column})."),
            "Run `terraform output -json` in that directory to see it. If `terraform` is a script that prints other text, set \
             `terraform_path` to the Terraform binary.",
        ),
        FormatError::NotJson { .. } | FormatError::Unrecognized => {
            invalid(happened, "Use a state file, or the output of `terraform output -json`.")
        }
        FormatError::Encrypted => invalid(
            happened,
            "Set `directory` and `terraform_path = \"tofu\"`: OpenTofu decrypts the state. Or use the output of `tofu output -json`.",
        ),
        FormatError::BackendSettings => invalid(
            happened,
            "The state is in the backend: set `directory`, or read the output with `terraform_remote_state`.",
        ),
        FormatError::NoOutput(others) => invalid(
            format!("{name}: {}", no_output(others)),
            format!(
                "Add the output `{OUTPUT}` to that configuration, and apply it.{} If that deployment was destroyed, \
                 remove this data source.",
                workspace(source)
            ),
        ),
    }
}

fn no_output(outputs: &[String]) -> String {
    if outputs.is_empty() {
        return format!("it has no outputs, so `{OUTPUT}` is missing.");
    }
    let outputs: Vec<_> = outputs.iter().map(|name| format!("`{name}`")).collect();
    format!("it has no output `{OUTPUT}`. Its outputs are {}.", outputs.join(", "))
}

fn workspace(source: &Source) -> &'static str {
    match source {
        Source::Directory(_) => {
            " If that configuration uses another workspace, select it: with `TF_WORKSPACE`, which also applies to the command in the \
             directory, or, if this variable is not set, with `terraform workspace select NAME` in the directory."
        }
        Source::File(_) => "",
    }
}

fn command(name: &str, error: &CommandError) -> Problem {
    match error {
        CommandError::Directory(problem) => invalid(format!("{name}: {problem}."), "Correct `directory`."),
        CommandError::NotFound(programs) => {
            let programs: Vec<_> = programs.iter().map(|program| format!("`{program}`")).collect();
            invalid(
                format!("{name}: {} was not found.", programs.join(" or ")),
                "Set `terraform_path` to the path of Terraform or OpenTofu, or add its directory to PATH.",
            )
        }
        CommandError::NotStarted { program, problem } => {
            invalid(format!("{name}: `{program}` cannot be started: {problem}."), "Correct `terraform_path`.")
        }
        CommandError::Failed { command, status, stderr } => {
            let stderr = plain_lines(stderr);
            let stderr =
                if stderr.is_empty() { String::new() } else { format!(" Its standard error:\n\n{stderr}") };
            invalid(
                format!("{name}: `{command}` failed ({status}).{stderr}"),
                "Run the command in that directory to see the cause. If the directory is not initialized, run `terraform init` there.",
            )
        }
        CommandError::TooLarge(_) => {
            invalid(format!("{name}: {error}."), "Read the output with `terraform_remote_state`.")
        }
    }
}

/// What Terraform writes about an error, without the frame around it.
fn plain_lines(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_start_matches(['╷', '│', '╵']).trim());
    let mut plain = String::new();
    for line in lines.filter(|line| !line.is_empty()) {
        if !plain.is_empty() {
            plain.push('\n');
        }
        plain.push_str(line);
    }
    plain
}

fn invalid(happened: String, next_step: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidConfig, SUMMARY, happened, next_step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::samples::all;

    #[test]
    fn deployment_errors_match_snapshot() {
        let file = || Source::File("../v1/terraform.tfstate".into());
        let directory = || Source::Directory(Directory { path: "../v1".into(), program: None });
        let stderr = "╷\n│ Error: Backend initialization required, please run \"terraform init\"\n│ \n│ Reason: Initial configuration\n╵\n";
        let cases = [
            (file(), ReadError::File("No such file or directory".into())),
            (file(), FormatError::NotJson { line: 1, column: 0 }.into()),
            (file(), FormatError::Encrypted.into()),
            (file(), FormatError::BackendSettings.into()),
            (file(), FormatError::Unrecognized.into()),
            (file(), FormatError::NoOutput(vec!["a".into(), "b".into()]).into()),
            (directory(), FormatError::NoOutput(vec![]).into()),
            (directory(), CommandError::Directory("it is not a directory".into()).into()),
            (directory(), CommandError::NotFound(vec!["terraform".into(), "tofu".into()]).into()),
            (
                directory(),
                CommandError::NotStarted { program: "./tf".into(), problem: "Permission denied".into() }
                    .into(),
            ),
            (
                directory(),
                CommandError::Failed {
                    command: "terraform output".into(),
                    status: "exit status 1".into(),
                    stderr: stderr.into(),
                }
                .into(),
            ),
            (directory(), CommandError::TooLarge("terraform output".into()).into()),
            (directory(), FormatError::NotJson { line: 1, column: 2 }.into()),
            (directory(), ReadError::TimedOut(std::time::Duration::from_secs(60))),
            (directory(), ReadError::Interrupted),
        ];
        let texts = all(cases.iter().map(|(source, error)| not_read(source, error)).collect());
        insta::assert_snapshot!(texts);
    }
}

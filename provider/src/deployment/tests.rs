use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use grit_testkit::program;

use super::*;

fn limits(timeout: Duration) -> Limits {
    Limits { stop: CancellationToken::new(), timeout, start: Instant::now() }
}

const LONG: Duration = Duration::from_secs(60);

/// A program instead of Terraform: a shell script.
fn program(folder: &Path, script: &str) -> String {
    let path = folder.join("program");
    program::script(&path, script).unwrap();
    path.display().to_string()
}

fn directory(folder: &Path, script: &str) -> Directory {
    Directory { path: folder.to_owned(), program: Some(program(folder, script)) }
}

async fn run(directory: Directory) -> Result<Json, ReadError> {
    read(Source::Directory(directory), &limits(LONG)).await
}

const PRINT: &str = r#"printf '{"grit_runner_managers": {"value": "%s"}}' "$*|$PWD|$TF_INPUT""#;

#[tokio::test]
async fn command_runs_in_directory_with_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let found = run(directory(&path, PRINT)).await.unwrap_or_else(|error| panic!("{error:?}"));
    let wanted = format!("output -json -no-color|{}|0", path.display());
    assert_eq!(found, Json::String(wanted));
}

/// Such as the script of the action setup-terraform.
#[tokio::test]
async fn text_of_a_script_around_the_command_is_not_shown() {
    for script in [
        r#"printf '[command]/tf output -json\n{"grit_runner_managers": {"value": "SECRET"}}'"#,
        r#"printf '{"grit_runner_managers": {"value": "SECRET"}}\nexit code: 0\n'"#,
        "true",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = run(directory(folder.path(), script)).await.err().unwrap();
        assert!(matches!(error, ReadError::Format(FormatError::NotJson { .. })), "{error:?}");
    }
}

/// It left the process group, and keeps standard output and standard error open.
#[tokio::test]
async fn daemon_of_the_command_does_not_delay_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // The daemon writes the file when it has left the group.
    let script = format!(
        "setsid sh -c 'echo $$ > {0}; exec sleep 1000' &\nwhile ! test -s {0}; do sleep 0.01; done\n{PRINT}",
        pid.display()
    );
    let found = read(Source::Directory(directory(folder.path(), &script)), &limits(LONG)).await;
    let daemon = fs::read_to_string(&pid).unwrap();
    assert!(is_alive(daemon.trim()), "it holds the pipes");
    std::process::Command::new("kill").arg(daemon.trim()).status().unwrap();
    assert!(found.is_ok());
}

#[tokio::test]
async fn failed_command_reports_status_and_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let failed = run(directory(folder.path(), "echo '{\"secret\": 1}'\necho 'no backend' >&2\nexit 3")).await;
    let Err(ReadError::Command(CommandError::Failed { command, status, stderr })) = failed else {
        panic!("{:?}", failed.err())
    };
    assert!(command.ends_with("program output"), "{command}");
    assert_eq!((status.as_str(), stderr.as_str()), ("exit status 3", "no backend\n"));
}

#[tokio::test]
async fn missing_directory_or_program_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut missing = directory(folder.path(), PRINT);
    missing.path = folder.path().join("missing");
    let error = run(missing.clone()).await.err().unwrap();
    assert_eq!(error.to_string(), "No such file or directory");
    missing.path = folder.path().join("program");
    assert_eq!(run(missing.clone()).await.err().unwrap().to_string(), "it is not a directory");
    missing.path = folder.path().to_owned();
    missing.program = Some("no-such-terraform".into());
    assert_eq!(
        run(missing.clone()).await.err().unwrap().to_string(),
        "no program was found: no-such-terraform"
    );
    missing.program = Some(program(folder.path(), PRINT));
    fs::set_permissions(folder.path().join("program"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = run(missing).await.err().unwrap();
    assert!(matches!(error, ReadError::Command(CommandError::NotStarted { .. })), "{error:?}");
}

/// Whether a process is there that is not a zombie.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// A command that ignores SIGTERM and has a child, and the files with their process ids.
fn stubborn(folder: &Path) -> (Directory, [PathBuf; 2]) {
    let pids = [folder.join("child.pid"), folder.join("pid")];
    let script = format!(
        "trap '' TERM\nsleep 600 &\necho $! > {}\necho $$ > {}\nwait\nsleep 600",
        pids[0].display(),
        pids[1].display()
    );
    (directory(folder, &script), pids)
}

async fn pids(files: &[PathBuf; 2]) -> [String; 2] {
    while !fs::read_to_string(&files[1]).is_ok_and(|pid| pid.ends_with('\n')) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    [&files[0], &files[1]].map(|file| fs::read_to_string(file).unwrap())
}

/// A process ends a moment after it was killed.
async fn ended(pid: &str) {
    let gone = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), gone).await.unwrap_or_else(|_| panic!("{pid} is running"));
}

#[tokio::test]
async fn timeout_ends_the_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, files) = stubborn(folder.path());
    let limit = Duration::from_secs(3);
    let error = read(Source::Directory(directory), &limits(limit)).await.err().unwrap();
    assert!(matches!(error, ReadError::TimedOut(it) if it == limit), "{error:?}");
    for pid in pids(&files).await {
        ended(&pid).await;
    }
}

#[tokio::test]
async fn stop_ends_the_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, files) = stubborn(folder.path());
    let limits = limits(LONG);
    let (error, processes) = tokio::join!(read(Source::Directory(directory), &limits), async {
        let processes = pids(&files).await;
        limits.stop.cancel();
        processes
    });
    assert!(matches!(error.err().unwrap(), ReadError::Interrupted));
    for pid in processes {
        ended(&pid).await;
    }
}

#[tokio::test]
async fn readable_file_is_read_and_problem_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("terraform.tfstate");
    fs::write(&path, r#"{"version": 4, "outputs": {"grit_runner_managers": {"value": {}}}}"#).unwrap();
    let value = read(Source::File(path), &limits(LONG)).await;
    assert_eq!(value.unwrap(), serde_json::json!({}));
    let error = read(Source::File(folder.path().to_owned()), &limits(LONG)).await.err().unwrap();
    assert_eq!(error.to_string(), "it is a directory");
}

//! `grit-wrapper`: parses the command line, runs the command, and sets the exit code.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use grit_wrapper::{
        cli::{
            args::{Args, Command},
            commands,
        },
        daemon::{host::logging, run},
    };

    grit_static_libc::limit_name_services();
    let args = match Args::from_process() {
        Ok(args) => args,
        Err(code) => return code,
    };
    match args.command {
        Command::Run(flags) => {
            let log = logging::init(flags.log_level);
            let code = run::run(&flags.settings()).unwrap_or_else(|error| {
                let code = error.exit_code();
                tracing::error!(exit_code = code, "{:#}", anyhow::Error::new(error));
                std::process::ExitCode::from(code)
            });
            log.flush();
            code
        }
        Command::Operator(command) => match commands::run(command) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(error) => {
                let (code, next_step) = (error.exit_code(), error.next_step());
                report(&format!("grit-wrapper: {:#}", anyhow::Error::new(error)));
                next_step.into_iter().for_each(report);
                std::process::ExitCode::from(code)
            }
        },
    }
}

/// Writes an error or a next step to stderr.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "stderr is the output of the operator's commands")]
fn report(text: &str) {
    eprintln!("{}", grit_wrapper::text::visible::visible(text));
}

#[cfg(not(target_os = "linux"))]
fn main() {
    compile_error!("grit-wrapper supports Linux only, because it uses pidfd");
}

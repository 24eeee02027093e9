//! `runner-stand-in run --config FILE`: behaves as `gitlab-runner run` does. See [`runner`].

use clap::Parser;

use crate::lab::runner;

#[derive(Debug, Parser)]
#[command(name = "runner-stand-in", version = "stand-in")]
enum Command {
    Run(runner::Options),
}

/// The program `runner-stand-in`.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> ! {
    let Command::Run(options) = Command::parse();
    let code = runner::run(options).await;
    // Not by returning: that would wait for blocked file reads.
    std::process::exit(code);
}

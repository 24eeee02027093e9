//! `runner-stand-in run --config FILE`: behaves as `gitlab-runner run` does. See `grit_tests::lab::runner`.

use clap::Parser;
use grit_tests::lab::runner;

#[derive(Debug, Parser)]
#[command(name = "runner-stand-in", version = "stand-in")]
enum Command {
    Run(runner::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let Command::Run(options) = Command::parse();
    let code = runner::run(options).await;
    // Not by returning: that would wait for blocked file reads.
    std::process::exit(code);
}

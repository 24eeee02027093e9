//! `documents DIR VERSION`: writes the manual pages and shell completions into a directory, for `cargo xtask dist`.

use std::{fs, path::PathBuf};

use clap::{CommandFactory, Parser};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use grit_wrapper::cli::args::Args;

const NAME: &str = "grit-wrapper";

#[derive(Debug, Parser)]
struct Documents {
    /// Receives the directories `completions` and `man`.
    folder: PathBuf,
    /// The version in the manual pages.
    version: String,
}

fn main() -> anyhow::Result<()> {
    let Documents { folder, version } = Documents::parse();
    let (completions, manual) = (folder.join("completions"), folder.join("man"));
    for folder in [&completions, &manual] {
        fs::create_dir_all(folder)?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut Args::command(), NAME, &completions)?;
    }
    // As clap needs it.
    let version: &'static str = version.leak();
    let mut command = Args::command().version(version).disable_help_subcommand(true);
    command.build();
    for command in command.get_subcommands().chain([&command]).filter(|command| !command.is_hide_set()) {
        let page = Man::new(command.clone()).section("8").source(format!("{NAME} {version}"));
        let mut text = Vec::new();
        page.render(&mut text)?;
        fs::write(manual.join(page.get_filename()), text)?;
    }
    Ok(())
}

//! The committed manual pages and shell completions are those of the command line.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use clap_complete::{generate, shells};
use clap_mangen::Man;
use grit_wrapper::cli::args::Args;

const NAME: &str = "grit-wrapper";

/// The text that `cargo xtask dist` replaces with the version.
const VERSION: &str = "@VERSION@";

fn generated() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let completions = Path::new("completions");
    let mut completion = |name: &str, write: &dyn Fn(&mut clap::Command, &mut Vec<u8>)| {
        let mut text = Vec::new();
        write(&mut Args::command(), &mut text);
        files.insert(completions.join(name), String::from_utf8(text).unwrap());
    };
    completion("grit-wrapper.bash", &|command, text| generate(shells::Bash, command, NAME, text));
    completion("grit-wrapper.fish", &|command, text| generate(shells::Fish, command, NAME, text));
    completion("_grit-wrapper", &|command, text| generate(shells::Zsh, command, NAME, text));

    let mut command = Args::command().version(VERSION).disable_help_subcommand(true);
    command.build();
    for command in command.get_subcommands().chain([&command]) {
        let page = Man::new(command.clone()).section("8").source(format!("{NAME} {VERSION}"));
        let mut text = Vec::new();
        page.render(&mut text).unwrap();
        files.insert(Path::new("man").join(page.get_filename()), String::from_utf8(text).unwrap());
    }
    files
}

#[test]
fn packaged_manual_and_completions_match_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let update = std::env::var_os("GRIT_UPDATE_GENERATED").is_some();
    let generated = generated();
    for (path, wanted) in &generated {
        let path = root.join(path);
        if update {
            fs::write(&path, wanted).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == *wanted, "{} is stale: run `cargo xtask gen`", path.display());
    }
    for folder in ["completions", "man"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = Path::new(folder).join(entry.unwrap().file_name());
            assert!(generated.contains_key(&path), "{} is not generated", path.display());
        }
    }
}

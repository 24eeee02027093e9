//! The tables of flags and states in docs/wrapper/ against `grit-wrapper run --help` and the API.

use std::{collections::BTreeMap, process::Command};

use grit_proto::wrapper_v1::State;

const DRAINING: &str = include_str!("../../../docs/wrapper/draining.md");
const REFERENCE: &str = include_str!("../../../docs/wrapper/reference.md");

/// The environment variable and the default of a flag; empty if it has none.
type Flag = (String, String);

fn help() -> BTreeMap<String, Flag> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"));
    let output = command.args(["run", "--help"]).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut flags: BTreeMap<String, Flag> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        let value = |key: &str| line.trim().strip_prefix(key)?.strip_suffix(']').map(str::to_owned);
        if let Some(flag) = line.strip_prefix("      --") {
            current = flag.split([' ', '[']).next().unwrap().to_owned();
            flags.insert(current.clone(), Flag::default());
        } else if let (Some(variable), Some(flag)) = (value("[env: "), flags.get_mut(&current)) {
            flag.0 = variable.trim_end_matches('=').to_owned();
        } else if let (Some(default), Some(flag)) = (value("[default: "), flags.get_mut(&current)) {
            flag.1 = default;
        }
    }
    flags
}

/// The rows of the table: a value in backticks. A description counts as no value.
fn reference() -> BTreeMap<String, Flag> {
    let (_, section) = REFERENCE.split_once("\n## Flags of `run`\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `--"));
    let rows = rows.map(|row| row.replace("\\|", "/"));
    let quoted = |cell: &str| {
        cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).unwrap_or_default().to_owned()
    };
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[0].split([' ', '[', '`']).next().unwrap();
        (name.to_owned(), (quoted(cells[1]), quoted(cells[2])))
    })
    .collect()
}

#[test]
fn reference_has_every_flag_with_variable_and_default() {
    let help = help();
    assert!(help.len() > 15, "{help:?}");
    assert_eq!(reference(), help);
}

#[test]
fn states_are_documented_in_order() {
    let (_, section) = DRAINING.split_once("\n## States\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let states = (1..).map_while(|number| State::try_from(number).ok());
    let names = states.map(|state| state.as_str_name().replace("STATE_", "").to_lowercase());
    assert_eq!(rows.collect::<Vec<_>>(), names.collect::<Vec<_>>());
}

//! `cargo xtask simulate`: runs seeds of the simulation (tests/src/simulation/), optimized and on all cores.

mod mutations;

use std::{
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail};

use crate::steps::{cargo, run as execute};

const TEST: &str = "simulation::tests::chosen_seeds_have_no_violation";

/// The options with a number, and the ends of their environment variables.
const NUMBERS: [(&str, &str); 4] =
    [("--seeds", "SEEDS"), ("--from", "FROM"), ("--failures", "FAILURES"), ("--seed", "SEED")];

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut variables = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "--whole" => variables.push(("WHOLE", 1)),
            "--rates" => variables.push(("RATES", 1)),
            "--mutations" => return mutations::run(arguments.next().map_or("", String::as_str)),
            _ => {
                let Some((_, name)) = NUMBERS.iter().find(|(known, _)| known == option) else {
                    bail!("{option} is not an option of simulate; see `cargo xtask help`");
                };
                let number = arguments.next().with_context(|| format!("{option} needs a number"))?;
                let number = number.parse().with_context(|| format!("{option} {number} is not a number"))?;
                variables.push((*name, number));
            }
        }
    }
    let is_set = |wanted: &str| variables.iter().any(|(name, _)| *name == wanted);
    if !is_set("SEED") && !is_set("FROM") {
        let first = fresh_seed()?;
        println!("the first seed is {first}: to repeat this run, use --from {first}");
        variables.push(("FROM", first));
    }
    eprintln!("building the optimized simulation: the first time, this takes up to 10 minutes");
    execute(&mut seeds(&variables))
}

/// The time in milliseconds: two runs share no seed, unless one has more seeds than milliseconds are between them.
fn fresh_seed() -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(u64::try_from(now.as_millis())?)
}

/// The command that runs the seeds of these variables.
fn seeds(variables: &[(&str, u64)]) -> Command {
    let arguments = ["test", "--profile", "simulation", "--package", "grit-tests", "--lib", "--quiet", "--"];
    let mut command = cargo(&arguments);
    choose(&mut command, variables);
    command
}

/// Makes the test program of the simulation run the seeds of these variables.
fn choose(command: &mut Command, variables: &[(&str, u64)]) {
    command.args(["--ignored", "--exact", "--nocapture", TEST]);
    for (name, number) in variables {
        command.env(format!("GRIT_SIMULATION_{name}"), number.to_string());
    }
}

//! How often the transitions of the wrapper, the errors of the client and the faults happen: a run that no longer meets one proves less than it seems.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{host::table, limits::MANY, network::errors};

/// A line for each: in how many of 1,000 seeds it happens, and its name. `cargo xtask simulate --rates` writes it.
const RATES: &str = include_str!("rates.txt");

/// What a run counts and this file has begins with one of these.
const KINDS: [&str; 3] = ["row ", "client error: ", "fault: "];

/// A rate is judged if at least this number of seeds should have it: a quarter of it is then no chance.
const ENOUGH: f64 = 24.0;

pub(super) fn is_judged(what: &str) -> bool {
    KINDS.iter().any(|kind| what.starts_with(kind))
}

fn known() -> impl Iterator<Item = (f64, &'static str)> {
    RATES.lines().filter_map(|line| line.trim().split_once("  ")).map(|(rate, name)| {
        let rate = rate.parse().unwrap_or_default();
        (rate, name)
    })
}

/// What these seeds have met too rarely, less than a quarter of its rate, and what the file does not have.
pub(super) fn problems(counts: &BTreeMap<String, u64>, seeds: u64) -> Vec<String> {
    if seeds < MANY {
        return Vec::new();
    }
    let known: BTreeMap<_, _> = known().map(|(rate, name)| (name, rate)).collect();
    let rare = known.iter().filter_map(|(name, rate)| {
        let (expected, met) = (rate * seeds as f64 / 1_000.0, counts.get(*name).copied().unwrap_or_default());
        let is_rare = expected >= ENOUGH && (met as f64) < expected / 4.0;
        is_rare.then(|| format!("in {met} of {seeds} seeds, and {expected:.0} are usual: {name}"))
    });
    let new = counts.keys().filter(|name| is_judged(name) && !known.contains_key(name.as_str()));
    rare.chain(new.map(|name| format!("rates.txt does not have: {name}"))).collect()
}

/// The file for these counts.
pub(super) fn text(counts: &BTreeMap<String, u64>, seeds: u64) -> String {
    let met = counts.iter().filter(|(name, _)| is_judged(name)).map(|(name, times)| (name.clone(), *times));
    let mut all: BTreeMap<String, u64> =
        table::names().into_iter().chain(errors::names()).map(|name| (name, 0)).collect();
    all.extend(met);
    let mut text = String::new();
    for (name, times) in all {
        let _written = writeln!(text, "{:>7.2}  {name}", times as f64 * 1_000.0 / seeds as f64);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_each_transition_and_error() {
        let known: Vec<_> = known().map(|(_, name)| name).collect();
        for name in table::names().iter().chain(&errors::names()) {
            assert!(known.contains(&name.as_str()), "{name}");
        }
        assert!(known.iter().all(|name| is_judged(name)), "{known:?}");
    }

    #[test]
    fn rare_and_unknown_ones_are_problems() {
        let mut counts: BTreeMap<String, u64> =
            known().map(|(rate, name)| (name.to_owned(), (rate * 10.0) as u64)).collect();
        assert_eq!(problems(&counts, MANY), [""; 0]);
        counts.insert("fault: host reset".to_owned(), 1);
        counts.insert("fault: the weather".to_owned(), 1);
        let found = problems(&counts, MANY);
        assert!(found[0].ends_with("are usual: fault: host reset"), "{found:?}");
        assert_eq!(found[1..], ["rates.txt does not have: fault: the weather"]);
        assert_eq!(problems(&counts, MANY - 1), [""; 0]);
    }
}

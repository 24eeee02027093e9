use std::{env, fs, path::Path, process::Command, thread, time::Instant};

use super::*;

/// The seeds of the suite, in parts that run at the same time. Our own code is not optimized there: a seed takes a quarter of a second.
const PART: u64 = 20;

fn assert_no_violation(part: u64) {
    let report = check(first_seed() + part * PART, PART, 1, 1, "");
    assert!(!report.loses_too_many_jobs(), "{:?}", report.counts);
    assert_eq!(limits::problems(&report.counts, report.seeds), [""; 0]);
    if let Some(Failed { seed, violations }) = report.failed.first() {
        let shortest = shortest(*seed);
        panic!(
            "seed {seed}: {violations:?}\n\nThe shortest run:\n{}\nTo repeat it: cargo xtask simulate --seed {seed}",
            shortest.trace
        );
    }
}

/// Each release has others.
fn first_seed() -> u64 {
    let number = |part: &str| part.parse::<u64>().unwrap();
    let version = [
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    100_000_000 + version.iter().fold(0, |all, part| all * 100 + part) * 10_000
}

#[test]
fn seeds_of_first_part_have_no_violation() {
    assert_no_violation(0);
}

#[test]
fn seeds_of_second_part_have_no_violation() {
    assert_no_violation(1);
}

#[test]
fn seeds_of_third_part_have_no_violation() {
    assert_no_violation(2);
}

#[test]
fn seeds_of_fourth_part_have_no_violation() {
    assert_no_violation(3);
}

#[test]
fn seeds_of_fifth_part_have_no_violation() {
    assert_no_violation(4);
}

#[test]
fn seeds_of_sixth_part_have_no_violation() {
    assert_no_violation(5);
}

#[test]
fn seeds_of_seventh_part_have_no_violation() {
    assert_no_violation(6);
}

#[test]
fn seeds_of_eighth_part_have_no_violation() {
    assert_no_violation(7);
}

#[test]
fn same_seed_has_same_trace() {
    for seed in 1..30 {
        let (first, second) = (run(seed).trace, run(seed).trace);
        let differ = first.lines().zip(second.lines()).find(|(first, second)| first != second);
        assert_eq!(differ, None, "seed {seed}");
        assert!(first == second, "seed {seed}");
    }
}

/// `cargo xtask simulate --mutations` shows that each is found.
#[test]
fn mutations_apply_to_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = fs::read_dir(root.join("tests/src/simulation/mutations")).unwrap();
    let mut patches: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    patches.sort();
    // All together, in this order, as in the one build with all of them.
    let checked = Command::new("git").args(["apply", "--check"]).args(&patches).current_dir(&root).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    // The first is the switch.
    for patch in &patches[1..] {
        let (name, text) = (patch.file_stem().unwrap().to_str().unwrap(), fs::read_to_string(patch).unwrap());
        assert!(text.contains(&format!("mutation(\"{name}\")")), "{name} has another name behind its switch");
        let head = text.split("diff --git").next().unwrap();
        let of = |key| head.lines().filter_map(|line| line.strip_prefix(key)).collect::<Vec<_>>();
        match (of("Violation: ").as_slice(), of("Found by: ").as_slice()) {
            // A transition that the table does not have is no promise.
            ([violation], []) => assert!(!violation.contains("no row"), "{name}"),
            ([], [test]) => assert!(exists(&root, test), "{name}: {test} does not exist"),
            other => panic!("{name} must have one violation, or one test: {other:?}"),
        }
    }
    assert!(patches.len() > 70, "{} patches", patches.len());
}

/// Whether there is a test of this binary and name. The unit tests are run with the mutation.
fn exists(root: &Path, test: &str) -> bool {
    let (binary, test) = test.split_once(' ').unwrap();
    let folder = match binary {
        "wrapper" => "wrapper/tests/wrapper",
        "e2e" => "tests/tests/e2e",
        "ssh" => "tests/tests/ssh",
        _ => return true,
    };
    let (module, test) = test.split_once("::").unwrap();
    let text = fs::read_to_string(root.join(folder).join(module).with_extension("rs"));
    text.is_ok_and(|text| text.contains(&format!("fn {test}(")))
}

/// `cargo xtask simulate`, whose arguments are environment variables here.
#[test]
#[ignore = "the seeds of `cargo xtask simulate`"]
fn chosen_seeds_have_no_violation() {
    let number = |name: &str| env::var(format!("GRIT_SIMULATION_{name}")).ok().and_then(|it| it.parse().ok());
    if let Some(seed) = number("SEED") {
        let outcome = if number("WHOLE") == Some(1) { run(seed) } else { shortest(seed) };
        print!("{}", outcome.trace);
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        return;
    }
    let begin = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let max_failed = number("FAILURES").and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
    let expected = env::var("GRIT_SIMULATION_EXPECT").unwrap_or_default();
    let (first, count) = (number("FROM").unwrap_or(1), number("SEEDS").unwrap_or(10_000));
    let report = check(first, count, threads, max_failed, &expected);
    if !expected.is_empty() {
        print_expected(&report, &expected);
        return;
    }
    for (what, times) in &report.counts {
        println!("{times:>10} {what}");
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let rate = report.seeds as f64 / elapsed;
    println!("{} seeds in {elapsed:.1} s ({rate:.0} seeds/s), {} failed", report.seeds, report.failed.len());
    if number("RATES") == Some(1) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation/rates.txt");
        fs::write(path, rates::text(&report.counts, report.seeds)).unwrap();
    }
    for failed in &report.failed {
        println!("seed {}: {}", failed.seed, failed.violations.join("; "));
    }
    if let Some(failed) = report.failed.first() {
        println!("\nThe shortest run of seed {}:\n{}", failed.seed, shortest(failed.seed).trace);
        println!("To repeat it: cargo xtask simulate --seed {}", failed.seed);
    }
    assert!(report.failed.is_empty(), "{} seeds failed", report.failed.len());
    assert_eq!(limits::problems(&report.counts, report.seeds), [""; 0]);
    assert_eq!(rates::problems(&report.counts, report.seeds), [""; 0]);
    assert!(!report.loses_too_many_jobs(), "too many drains have lost a job");
}

/// The violation that `cargo xtask simulate --mutations` expects: of the first seed that has it, or of all seeds, in which a limit happens too often.
fn print_expected(report: &Report, expected: &str) {
    let found = report.failed.iter().find_map(|failed| {
        let violation = failed.violations.iter().find(|violation| violation.contains(expected))?;
        Some(format!("seed {}: {violation}", failed.seed))
    });
    let problems = limits::problems(&report.counts, report.seeds);
    match found.or_else(|| problems.into_iter().find(|problem| problem.contains(expected))) {
        Some(found) => println!("expected: {found}"),
        None => println!("not expected: {} of {} seeds failed", report.failed.len(), report.seeds),
    }
}

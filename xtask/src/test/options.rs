//! The command line of `cargo xtask test`.

/// The parsed options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Install missing requirements.
    pub(crate) set_up: bool,
    /// Build only.
    pub(crate) build_only: bool,
    /// Run the long tests in full.
    pub(crate) nightly: bool,
    /// List what this machine cannot test instead of failing.
    pub(crate) allow_missing: bool,
    /// Fail for what the committed list does not have.
    pub(crate) known_missing: bool,
    /// Run only the end-to-end tests on these cores.
    pub(crate) cores: Vec<String>,
    /// For libtest, as after `cargo test --`: filters and flags.
    pub(crate) tests: Vec<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Options> {
        let (ours, theirs) = match arguments.iter().position(|argument| argument == "--") {
            Some(place) => (&arguments[..place], &arguments[place + 1..]),
            None => (arguments, [].as_slice()),
        };
        let mut options = Options {
            set_up: true,
            build_only: false,
            nightly: false,
            allow_missing: false,
            known_missing: false,
            cores: Vec::new(),
            tests: theirs.to_vec(),
        };
        let mut ours = ours.iter();
        while let Some(argument) = ours.next() {
            match argument.as_str() {
                "--core" => match ours.next() {
                    Some(name) => options.cores.push(name.clone()),
                    None => anyhow::bail!("--core requires the name of a core"),
                },
                "--no-run" => options.build_only = true,
                "--no-setup" => options.set_up = false,
                "--nightly" => options.nightly = true,
                "--allow-missing" => options.allow_missing = true,
                "--known-missing" => (options.allow_missing, options.known_missing) = (true, true),
                other => anyhow::bail!("unknown option {other}"),
            }
        }
        Ok(options)
    }

    /// Whether the whole check was requested: all tests, on the usual cores.
    pub(crate) fn everything(&self) -> bool {
        self.cores.is_empty() && !self.selects_tests()
    }

    /// Whether there is an argument that selects tests.
    fn selects_tests(&self) -> bool {
        let mut arguments = self.tests.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            match argument {
                "--exact" | "--skip" => return true,
                flag if flag == "--test-threads" || has_value(flag) => {
                    arguments.next();
                }
                flag if flag.starts_with('-') && !flag.starts_with("--skip=") => {}
                _ => return true,
            }
        }
        false
    }

    /// The flags for a process that runs one test, without those that select tests or set the number of threads.
    pub(crate) fn flags(&self) -> Vec<&str> {
        let mut flags = Vec::new();
        let mut arguments = self.tests.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            match argument {
                "--skip" | "--test-threads" => drop(arguments.next()),
                "--exact" | "--list" => {}
                flag if has_value(flag) => {
                    flags.push(flag);
                    flags.extend(arguments.next());
                }
                flag if flag.starts_with("--skip=") || flag.starts_with("--test-threads=") => {}
                flag if flag.starts_with('-') => flags.push(flag),
                _ => {}
            }
        }
        flags
    }

    /// The requested number of parallel tests.
    pub(crate) fn threads(&self) -> anyhow::Result<Option<usize>> {
        let mut arguments = self.tests.iter();
        let value = arguments.find_map(|argument| match argument.strip_prefix("--test-threads") {
            Some("") => Some(None),
            Some(value) => Some(value.strip_prefix('=')),
            None => None,
        });
        let value = match value {
            None => return Ok(None),
            Some(Some(value)) => Some(value),
            Some(None) => arguments.next().map(String::as_str),
        };
        match value.and_then(|value| value.parse().ok()) {
            Some(0) | None => anyhow::bail!("--test-threads requires a number above 0"),
            number => Ok(number),
        }
    }

    /// Whether the tests' output is shown immediately.
    pub(crate) fn shows_output(&self) -> bool {
        self.tests.iter().any(|argument| argument == "--nocapture" || argument == "--no-capture")
    }
}

/// Whether the next argument is the value of this flag, which each process receives.
fn has_value(flag: &str) -> bool {
    ["--format", "--color", "--logfile", "-Z", "--shuffle-seed"].contains(&flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Options {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn name_or_core_selects_a_part_of_the_check() {
        assert!(parse("").everything() && parse("--nightly").everything());
        assert!(parse("-- --test-threads 4 --nocapture").everything());
        assert!(!parse("--core 1.9").everything() && !parse("-- drain").everything());
        assert!(!parse("-- --skip drain").everything() && !parse("-- --skip=drain").everything());
    }

    #[test]
    fn arguments_after_two_dashes_go_to_tests() {
        let options = parse("--nightly -- --nocapture roll --skip slow --test-threads 3 --exact");
        assert!(options.nightly && options.set_up && !options.allow_missing && options.shows_output());
        assert_eq!(options.flags(), ["--nocapture"]);
        assert_eq!(options.threads().unwrap(), Some(3));
        assert_eq!(parse("-- --test-threads=5").threads().unwrap(), Some(5));
        assert_eq!(parse("").threads().unwrap(), None);
        assert!(parse("-- --test-threads=none").threads().is_err());
    }

    #[test]
    fn unknown_option_is_rejected() {
        let error = Options::parse(&["--quick".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("--quick"), "{error}");
    }
}

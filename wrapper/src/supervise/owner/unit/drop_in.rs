//! The settings that the runner's unit must have: the lines of the drop-in that the package installs.
//!
//! docs/adr/0003-attach-to-the-unit.md has the reason of each line.

use std::fs;

use super::{name::UnitName, systemctl::Shown};

/// The lines with a fixed value: property, its value, and the line.
const LINES: [(&str, &str, &str); 4] = [
    ("KillMode", "mixed", "KillMode=mixed"),
    ("KillSignal", "3", "KillSignal=SIGQUIT"),
    ("TimeoutStopUSec", "infinity", "TimeoutStopSec=infinity"),
    ("OOMPolicy", "continue", "OOMPolicy=continue"),
];

/// The commands: property, a part of its value, and the line.
const COMMANDS: [(&str, &str, &str); 3] = [
    ("ExecCondition", "/held/", "ExecCondition=+/usr/bin/test ! -e /run/grit-wrapper/held/%n"),
    ("ExecStop", " exec-stop ", "ExecStop=-+/usr/bin/grit-wrapper exec-stop %n"),
    ("ExecStopPost", " exec-stop-post ", "ExecStopPost=-+/usr/bin/grit-wrapper exec-stop-post %n"),
];

/// A condition, which systemctl does not show: it is read from the files of the unit.
const CONDITION: &str = "ConditionPathExists=!/run/grit-wrapper/held/%n";

/// The faults of the unit, each with the line to add.
pub(super) fn faults(unit: &UnitName, shown: &Shown) -> Vec<String> {
    faults_of(unit, shown, has_condition(shown))
}

fn has_condition(shown: &Shown) -> bool {
    let files = ["FragmentPath", "DropInPaths"].into_iter().flat_map(|key| shown.get(key).split(' '));
    files
        .filter_map(|file| fs::read_to_string(file).ok())
        .any(|text| text.lines().any(|line| line == CONDITION))
}

fn faults_of(unit: &UnitName, shown: &Shown, has_condition: bool) -> Vec<String> {
    if shown.get("LoadState") != "loaded" {
        // `not-found`, `masked`, `bad-setting` ...
        let state = shown.get("LoadState");
        return vec![format!(
            "systemd cannot load the runner's unit {unit}: LoadState={state}; see `systemctl status {unit}`"
        )];
    }
    let missing_in = |section: &str, line: &str| {
        format!(
            "the runner's unit {unit} does not have the line `{line}`: add the line to /etc/systemd/system/{unit}.d/grit-wrapper.conf, section \
             [{section}], and run `systemctl daemon-reload`"
        )
    };
    let missing = |line: &str| missing_in("Service", line);
    let fixed = LINES.iter().filter(|(key, value, _)| shown.get(key) != *value).map(|(_, _, line)| *line);
    // systemctl shows a time with its unit. The next runner must not start before the wrapper can prevent it.
    let restart = shown.get("RestartUSec");
    let is_short = restart == "0" || restart.ends_with("ms") || restart.ends_with("us");
    let short = is_short.then_some("RestartSec=5s");
    let commands = COMMANDS.iter().filter(|(key, part, _)| !shown.all(key).any(|value| value.contains(part)));
    let mut faults: Vec<_> =
        fixed.chain(short).chain(commands.map(|(_, _, line)| *line)).map(missing).collect();
    if !has_condition {
        faults.push(missing_in("Unit", CONDITION));
    }
    if shown.get("NeedDaemonReload") == "yes" {
        faults
            .push(format!("systemd has not read the changed files of {unit}: run `systemctl daemon-reload`"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = "LoadState=loaded\nKillMode=mixed\nKillSignal=3\nTimeoutStopUSec=infinity\nOOMPolicy=continue\nRestartUSec=5s\n\
        ExecCondition={ path=/usr/bin/test ; argv[]=/usr/bin/test ! -e /run/grit-wrapper/held/a.service ; }\n\
        ExecStop={ path=/usr/bin/grit-wrapper ; argv[]=/usr/bin/grit-wrapper exec-stop a.service ; }\n\
        ExecStopPost={ path=/usr/bin/grit-wrapper ; argv[]=/usr/bin/grit-wrapper exec-stop-post a.service ; }\nNeedDaemonReload=no\n";

    fn found(text: &str) -> Vec<String> {
        faults_of(&"a.service".parse().unwrap(), &Shown::parse(text), true)
    }

    #[test]
    fn missing_condition_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conf");
        let shown = format!("{COMPLETE}FragmentPath=/nowhere\nDropInPaths=/nowhere {}\n", path.display());
        let found = || faults(&"a.service".parse().unwrap(), &Shown::parse(&shown));
        assert!(found()[0].contains(&format!("`{CONDITION}`")), "{:?}", found());
        fs::write(&path, format!("[Unit]\n# {CONDITION}\n")).unwrap();
        assert_eq!(found().len(), 1);
        fs::write(&path, format!("[Unit]\n{CONDITION}\n")).unwrap();
        assert_eq!(found(), [""; 0]);
    }

    #[test]
    fn each_missing_line_is_a_fault_with_the_line() {
        assert_eq!(found(COMPLETE), [""; 0]);
        for (at, (key, line)) in
            COMPLETE.lines().map(|line| (line.split('=').next().unwrap(), line)).enumerate()
        {
            let without: String = COMPLETE
                .lines()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .map(|(_, line)| format!("{line}\n"))
                .collect();
            match key {
                "LoadState" => assert!(found(&without)[0].contains("cannot load"), "{line}"),
                // Absent: systemd's default, which the value shows.
                "NeedDaemonReload" | "RestartUSec" => assert_eq!(found(&without), [""; 0]),
                _ => {
                    let faults = found(&without);
                    let setting = key.replace("USec", "Sec");
                    assert!(
                        faults.len() == 1 && faults[0].contains(&format!("`{setting}=")),
                        "{line}: {faults:?}"
                    );
                }
            }
        }
        assert!(
            found(&COMPLETE.replace("RestartUSec=5s", "RestartUSec=100ms"))[0].contains("`RestartSec=5s`")
        );
        assert!(found(&COMPLETE.replace("=no", "=yes"))[0].contains("daemon-reload"));
    }
}

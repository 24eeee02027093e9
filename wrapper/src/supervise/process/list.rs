//! The processes of this host, and their parents.

use std::{collections::HashSet, fs};

use super::stat::Process;

impl Process {
    /// The kernel's name of it: of its program file, without arguments, which may contain secrets. Never blocks, unlike its command line.
    pub(super) fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        name.trim_end().to_owned()
    }
}

pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// The descendants of `roots`, including `roots`, without `me` and its ancestors.
pub(super) fn descendants<'a>(all: &'a [Process], roots: &HashSet<u32>, me: u32) -> Vec<&'a Process> {
    let mut above = HashSet::from([me]);
    let mut found = roots.clone();
    // Each round adds a generation, because the list has no reliable order.
    loop {
        let before = above.len();
        above.extend(
            all.iter()
                .filter(|process| above.contains(&process.pid))
                .map(|process| process.parent)
                .collect::<Vec<_>>(),
        );
        if above.len() == before {
            break;
        }
    }
    loop {
        let before = found.len();
        let children =
            all.iter().filter(|process| found.contains(&process.parent) && !above.contains(&process.parent));
        found.extend(children.map(|process| process.pid).collect::<Vec<_>>());
        if found.len() == before {
            break;
        }
    }
    all.iter().filter(|process| found.contains(&process.pid) && !above.contains(&process.pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_exclude_own_process_in_any_order() {
        // 1 - 10 (root) - 11 - 12, and 11 - 20 (me) - 21; 30 is unrelated.
        let all = [(12, 11), (21, 20), (30, 1), (20, 11), (11, 10), (10, 1), (1, 0)]
            .map(|(pid, parent)| Process::child_of(parent, pid));
        let found = |roots: &[u32]| {
            let found = descendants(&all, &roots.iter().copied().collect(), 20);
            let mut found: Vec<_> = found.iter().map(|process| process.pid).collect();
            found.sort_unstable();
            found
        };
        // Ancestors of the wrapper and their other descendants are excluded.
        assert_eq!(found(&[10]), Vec::<u32>::new());
        assert_eq!(found(&[12, 21]), [12, 21]);
        assert_eq!(found(&[30]), [30]);
        assert_eq!(found(&[]), Vec::<u32>::new());
    }
}

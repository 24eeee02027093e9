//! The descendants of a process. sshd gives each SSH session a separate process session, so no process group has all of them.

use rustix::process::Pid;
use std::fs;

/// A process and all its descendants, parents before children.
pub fn with_descendants(root: Pid) -> Vec<Pid> {
    let all = parents();
    let mut found = vec![root.as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().filter_map(Pid::from_raw).collect()
}

/// Each process with its parent.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses can contain any character.
        let after_name = stat.rsplit_once(')')?.1;
        Some((pid, after_name.split_whitespace().nth(1)?.parse().ok()?))
    })
    .collect()
}

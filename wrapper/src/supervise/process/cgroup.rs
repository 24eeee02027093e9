//! A cgroup for the runner, if the wrapper's cgroup is delegated (`Delegate=yes` in a unit).
//!
//! It contains every process of the runner, regardless of parent, group, session or environment, and the kernel can kill all of them at
//! once. Only cgroup v2 supports this; its mount point is read from the list of mounts, because it differs on hosts with both versions.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    exec_barrier,
    identity::{Identity, Origin, Program},
};

/// Attributes that systemd sets on a delegated cgroup. The owner can read the first one, only root the second one.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// The cgroup of one runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup for this runner below the wrapper's cgroup; `None` if that is not delegated. `names`: the beginning of its name.
    pub(super) fn make(names: &str, runner: &Identity) -> io::Result<Option<Self>> {
        let Some(own) = delegated() else { return Ok(None) };
        let cgroup = Self(own.join(format!("{names}-{}-{}", runner.pid, runner.start_ticks)));
        match fs::create_dir(&cgroup.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Some(cgroup)),
        }
    }

    /// The cgroup with this name, of the previous wrapper's runner, if it exists below the wrapper's cgroup.
    pub(super) fn find(name: &str) -> Option<Self> {
        let is_name = name.starts_with(NAME) && !name.contains('/');
        let cgroup = is_name.then(|| Some(Self(delegated()?.join(name))))??;
        cgroup.0.join("cgroup.procs").exists().then_some(cgroup)
    }

    /// The name below the wrapper's cgroup.
    pub(super) fn name(&self) -> Option<String> {
        Some(self.0.file_name()?.to_str()?.to_owned())
    }

    /// Moves a process into the cgroup; its future children start there.
    pub(super) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }

    /// The processes in the cgroup and in all cgroups below it.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for folder in self.folders() {
            let list = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(list.lines().filter_map(|line| line.parse::<u32>().ok()));
        }
        found
    }

    /// Kills all processes in it at once. Fails on kernels before 5.14.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1")
    }

    /// Removes it, if it is empty.
    pub(super) fn remove(&self) {
        // Children before parents.
        for folder in self.folders().iter().rev() {
            let _in_use = fs::remove_dir(folder);
        }
    }

    /// The cgroup and all cgroups below it, parents before children.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.0.clone()];
        let mut next = 0;
        while let Some(folder) = folders.get(next).cloned() {
            next += 1;
            let below = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
            folders.extend(
                below
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        folders
    }
}

/// The beginning of the names of all runners' cgroups.
const NAME: &str = "grit-runner-";

/// The beginning of the names of the cgroups of the runners that have this state file. It differs for two wrappers in one cgroup.
pub(crate) fn names_for(state_file: Option<&Path>) -> String {
    let path = state_file.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    // FNV-1a: the same value in each release.
    let hash = path
        .iter()
        .flat_map(|path| path.as_os_str().as_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{NAME}{hash:016x}")
}

/// The running runner in a cgroup with such a name. Only the wrapper's user can make one, and the kernel shows its processes. With a program, the
/// process is at the exec barrier, and has this program: it becomes the runner, or exits without its wrapper.
pub(crate) fn runner_in(names: &str) -> Option<(Identity, Origin, Option<Program>)> {
    let entries = fs::read_dir(delegated()?).ok()?.filter_map(Result::ok);
    let runners = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (pid, start_ticks) = name.strip_prefix(names)?.strip_prefix('-')?.split_once('-')?;
        let identity = Identity::of(pid.parse().ok()?).ok()?;
        let is_it = start_ticks.parse() == Ok(identity.start_ticks)
            && identity.is_alive().unwrap_or(true)
            && Cgroup(entry.path()).processes().contains(&identity.pid);
        let origin = Origin { cgroup: Some(name), ..Origin::default() };
        is_it.then(|| (identity, origin, exec_barrier::program(identity.pid)))
    });
    runners.min_by_key(|(_, _, barrier)| barrier.is_some())
}

/// The directory of the wrapper's cgroup, if it is delegated.
fn delegated() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    own(&mounts, &fs::read_to_string("/proc/self/cgroup").ok()?).filter(|own| is_delegated(own))
}

/// The directory of this process' cgroup v2.
fn own(mounts: &str, cgroups: &str) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        // proc(5): the number of fields before " - " varies; the file system type follows it.
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<_> = before.split(' ').collect();
        let (root, point) = (*fields.get(3)?, *fields.get(4)?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        after.starts_with("cgroup2 ").then(|| Path::new(point).join(below))
    })
}

/// Whether this cgroup is delegated. A directory owned by a user who is not root is delegated as well.
fn is_delegated(own: &Path) -> bool {
    let mut value = [0_u8; 8];
    let marked =
        |name| rustix::fs::getxattr(own, name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1");
    let me = rustix::process::geteuid();
    let is_own = || {
        let owner = fs::metadata(own).map(|folder| std::os::unix::fs::MetadataExt::uid(&folder));
        !me.is_root() && owner.is_ok_and(|owner| owner == me.as_raw())
    };
    DELEGATED.into_iter().any(marked) || is_own()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        os::unix::process::ExitStatusExt,
        process::Command,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn kill_ends_all_processes_of_a_cgroup() {
        let read = |path| fs::read_to_string(path).unwrap();
        let folder = own(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
            .map(|own| own.join(format!("grit-test-kill-{}", std::process::id())))
            .filter(|folder| fs::create_dir_all(folder.join("below")).is_ok());
        let Some(folder) = folder else {
            return grit_testkit::not_covered(
                "the end of a cgroup",
                "no cgroup of version 2 can be made here",
            );
        };
        let (cgroup, below) = (Cgroup(folder.clone()), Cgroup(folder.join("below")));
        let mut processes = [&cgroup, &below].map(|cgroup| {
            let process = Command::new("sleep").arg("60").spawn().unwrap();
            cgroup.add(process.id()).unwrap();
            process
        });
        let found: BTreeSet<_> = cgroup.processes().into_iter().collect();
        assert_eq!(found, processes.each_ref().map(|process| process.id()).into());

        cgroup.kill().unwrap();
        let signals = processes.each_mut().map(|process| process.wait().unwrap().signal());
        assert_eq!(signals, [Some(9); 2]);
        // A process leaves its cgroup a moment after its exit.
        let begin = Instant::now();
        while folder.exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the cgroup is left");
            cgroup.remove();
            std::thread::yield_now();
        }
    }

    #[test]
    fn cgroup_v2_directory_is_found_in_mounts() {
        let unified = "25 30 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let container = "9 8 0:22 /pod/7 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        for (mounts, cgroups, folder) in [
            (unified, "0::/system.slice/w.service\n", Some("/sys/fs/cgroup/system.slice/w.service")),
            (hybrid, "4:memory:/x\n0::/\n", Some("/sys/fs/cgroup/unified")),
            (container, "0::/pod/7/w\n", Some("/sys/fs/cgroup/w")),
            (container, "0::/elsewhere\n", None),
            (unified, "4:memory:/x\n", None),
            ("", "0::/\n", None),
        ] {
            assert_eq!(own(mounts, cgroups), folder.map(PathBuf::from), "{mounts} {cgroups}");
        }
    }
}

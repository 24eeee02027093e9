//! CPU time and memory of processes, read from the kernel.

use std::{fs, num::NonZero, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// The kernel's unit in `/proc/PID/stat` and `/proc/stat`, the same on every architecture that it shows to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of all threads of this process, to the nanosecond.
pub(super) fn own_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// CPU time of all threads of a running process, to the nanosecond. 0 if it does not exist.
pub(super) fn cpu(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let used = threads.filter_map(|thread| {
        let line = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

/// CPU time of the reaped descendants of a process, to 10 ms. 0 if it does not exist.
pub(super) fn reaped_cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses can contain any character. The state is field 3; `cutime` and `cstime` are fields 16 and 17.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks: f64 = fields.split_whitespace().skip(13).take(2).filter_map(|it| it.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

/// Idle time of all cores since boot, to 10 ms.
pub(super) fn idle() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // cpu user nice system idle iowait ...
    let line = stat.lines().next().unwrap_or_default();
    let ticks: f64 = line.split_whitespace().skip(4).take(2).filter_map(|it| it.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

/// Number of available cores.
pub(super) fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| NonZero::get(cores) as f64)
}

/// A numeric field of `/proc/PID/status`: `VmRSS` (KiB), `Threads`... 0 if the process does not exist.
pub(super) fn status(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// The resident memory of a process in KB (1000 bytes), shared pages included.
pub(super) fn resident(pid: u32) -> f64 {
    status(pid, "VmRSS") * 1.024
}

/// The children of all threads of a process.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, time::Instant};

    #[test]
    fn cpu_time_counts_live_and_reaped_processes() {
        let own = std::process::id();
        let (before, before_by_threads) = (own_cpu(), cpu(own));
        let start = Instant::now();
        while own_cpu() < before + Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(30), "a busy loop uses no CPU");
        }
        assert!(cpu(own) > before_by_threads);

        let dead = reaped_cpu(own);
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        assert!(reaped_cpu(own) > dead);
    }

    #[test]
    fn proc_counters_are_parsed() {
        let own = std::process::id();
        assert!(resident(own) > 500.0, "{}", resident(own));
        assert!(status(own, "Threads") >= 1.0);
        assert!(idle() > Duration::ZERO && cores() >= 1.0);
        assert_eq!(resident(u32::MAX), 0.0);
    }
}

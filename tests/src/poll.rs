//! Waits for a condition instead of sleeping.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Calls `check` every 20 ms until it returns `Ok`, and panics with its last `Err` after `limit`.
///
/// The limit only ends a broken test; a passing test does not depend on it.
#[track_caller]
#[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
pub fn until<T, E: Debug>(what: &str, limit: Duration, mut check: impl FnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(last) if start.elapsed() > limit => {
                panic!("{what}: not within {limit:?}; last seen: {last:?}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

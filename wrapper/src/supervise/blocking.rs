//! Work that may hang in a file system that does not respond, such as a dead file server. A thread does it, and is left behind.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

/// These threads have a shallow call stack.
const STACK_SIZE: usize = 256 * 1024;

/// Starts `work` in a thread. The receiver gets its result, or an error if it panics.
pub(super) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (reply, answer) = oneshot::channel();
    let work = move || {
        let _not_waited_for = reply.send(work());
    };
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_SIZE).spawn(work)?;
    Ok(answer)
}

/// The names of work that did not end in time, and still goes on.
static LATE: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// The result of `work`, which is done in a thread. Fails after `limit` with `TimedOut`, and immediately while earlier work of this name is
/// late: so there are few threads, however long a file system hangs. When the future is dropped, the work goes on.
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    limit: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let hangs = || io::Error::new(io::ErrorKind::TimedOut, "the file system does not respond");
    if late().contains(name) {
        return Err(hangs());
    }
    let ended = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ended);
    let work = move || {
        let result = work();
        let mut late = late();
        has_ended.store(true, Ordering::Relaxed);
        late.remove(name);
        result
    };
    match timeout(limit, start(name, work)?).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(io::Error::other(format!("the thread `{name}` has panicked"))),
        Err(_) => {
            let mut late = late();
            if !ended.load(Ordering::Relaxed) {
                late.insert(name);
            }
            Err(hangs())
        }
    }
}

fn late() -> MutexGuard<'static, BTreeSet<&'static str>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn hanging_work_is_given_up() {
        let (release, held) = mpsc::channel::<()>();
        let error = run("test", Duration::from_millis(50), move || Ok(held.recv())).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // No further thread waits.
        let again = run("test", Duration::from_secs(60), || -> io::Result<()> { panic!("it was started") });
        assert_eq!(again.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(release);
        let released = async {
            while run("test", Duration::from_secs(60), || Ok(7)).await.ok() != Some(7) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), released).await.unwrap();
    }
}

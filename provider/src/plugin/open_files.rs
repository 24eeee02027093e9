//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit.
///
/// Each open SSH connection needs a file, and a health check connects to all its managers at the same time. The usual soft limit is 1024.
/// Terraform raises its limit, too, but starts providers with the original one.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Without rights for it, connections above the limit fail with an error that names it.
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
}

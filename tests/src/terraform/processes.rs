//! The processes of a given program, found by the path of their start, which is unique to a workspace.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::poll;

/// The processes that were started from a folder.
#[derive(Debug, Clone)]
pub struct Processes {
    folder: PathBuf,
}

impl Processes {
    /// The processes whose program is directly in `folder`, by the name of their start.
    pub fn started_from(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Their current PIDs.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be listed.
    pub fn ids(&self) -> io::Result<Vec<u32>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // An exited process and a zombie have no command line.
            let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
            if std::str::from_utf8(program)
                .is_ok_and(|program| Path::new(program).parent() == Some(&self.folder))
            {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Panics if some are left after `limit`.
    #[track_caller]
    pub fn assert_none_left(&self, limit: Duration) {
        poll::until("every provider process to end", limit, || match self.ids() {
            Ok(ids) if ids.is_empty() => Ok(()),
            Ok(ids) => Err(format!("still there: {ids:?}")),
            Err(error) => Err(error.to_string()),
        });
    }
}

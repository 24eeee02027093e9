//! Standard output.

use std::io::{self, Write};

use super::error::CommandError;

pub(super) fn print(text: &str) -> Result<(), CommandError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

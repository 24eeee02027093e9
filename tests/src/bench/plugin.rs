//! The start of the provider as a plugin.

use anyhow::Context;

use super::{Row, Settings, median, timed};
use crate::terraform::{self, ClientIdentity, Plugin};

const BENCH: &str = "plugin";

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let program = terraform::built("terraform-provider-grit")?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let identity = ClientIdentity::new()?;
    let start = || timed(|| Plugin::start(&program, folder.path(), Some(&identity.pem)));
    // The first start reads the binary from disk.
    start()?;
    let mut starts = Vec::new();
    for _ in 0..settings.samples(30) {
        starts.push(start()?.1);
    }
    Ok(vec![Row::new(BENCH, "exec to handshake line", median(&starts), "ms").budget(10.0)])
}

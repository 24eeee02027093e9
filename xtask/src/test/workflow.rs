//! Checks the workflows with zizmor (PyPI), which knows the format and the security rules of GitHub Actions.

use std::process::Command;

use anyhow::bail;

use super::cores;
use crate::steps::{output, root, run as execute, target};

const ZIZMOR: &str = "1.32.0";

pub(crate) fn lint(may_download: bool) -> anyhow::Result<()> {
    let folder = target().join(format!("zizmor-{ZIZMOR}"));
    let program = folder.join("bin/zizmor");
    if !program.is_file() {
        if !may_download {
            bail!("zizmor is missing: run this command without --no-setup");
        }
        println!("zizmor is missing: downloading 10 MB");
        let mut pip = Command::new(cores::environment()?);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]);
        output(pip.arg(&folder).arg(format!("zizmor=={ZIZMOR}")))?;
    }
    execute(
        Command::new(program).args(["--offline", "--no-progress", ".github/workflows"]).current_dir(root()),
    )
}

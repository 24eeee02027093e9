//! The command line of `cargo xtask dist`.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};

use super::{PROVIDER, WRAPPER};
use crate::steps::target;

const USAGE: &str = "cargo xtask dist [--out DIR] [--mirror DIR] [--version VERSION] [--programs DIR] [--quick] [--no-setup] \
                     [--only provider|tar|deb|rpm|sbom]…";

/// One file of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Provider,
    Tar,
    Deb,
    Rpm,
    ProviderSbom,
    WrapperSbom,
}

impl Kind {
    /// All files for this operating system. The wrapper is for Linux.
    fn all() -> Vec<Kind> {
        let provider = vec![Kind::Provider, Kind::ProviderSbom];
        let wrapper = [Kind::Tar, Kind::Deb, Kind::Rpm, Kind::WrapperSbom];
        let wrapper = wrapper.into_iter().filter(|_| cfg!(target_os = "linux"));
        provider.into_iter().chain(wrapper).collect()
    }

    fn named(name: &str) -> anyhow::Result<Vec<Kind>> {
        Ok(match name {
            "provider" => vec![Kind::Provider],
            "tar" => vec![Kind::Tar],
            "deb" => vec![Kind::Deb],
            "rpm" => vec![Kind::Rpm],
            "sbom" => vec![Kind::ProviderSbom, Kind::WrapperSbom],
            other => bail!("unknown kind {other}: {USAGE}"),
        })
    }

    /// The package whose program it contains or describes.
    pub(super) fn package(self) -> &'static str {
        match self {
            Kind::Provider | Kind::ProviderSbom => PROVIDER,
            Kind::Tar | Kind::Deb | Kind::Rpm | Kind::WrapperSbom => WRAPPER,
        }
    }
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) version: String,
    pub(super) out: PathBuf,
    /// A directory to add the provider to.
    pub(super) mirror: Option<PathBuf>,
    /// Programs to package instead of building them.
    pub(super) programs: Option<PathBuf>,
    /// Fast compression.
    pub(super) quick: bool,
    /// Install missing programs.
    pub(super) set_up: bool,
    pub(super) kinds: Vec<Kind>,
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> anyhow::Result<Options> {
        let mut options = Options {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            out: target().join("dist"),
            mirror: None,
            programs: None,
            quick: false,
            set_up: true,
            kinds: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} requires a value: {USAGE}"));
            match word.as_str() {
                "--version" => options.version = value()?.clone(),
                "--out" => options.out = value()?.into(),
                "--mirror" => options.mirror = Some(value()?.into()),
                "--programs" => options.programs = Some(value()?.into()),
                "--quick" => options.quick = true,
                "--only" => options.kinds.extend(Kind::named(value()?)?),
                "--no-setup" => options.set_up = false,
                other => bail!("unknown option {other}: {USAGE}"),
            }
        }
        if options.kinds.is_empty() {
            options.kinds = Kind::all();
        }
        check(&options.version)?;
        Ok(options)
    }

    /// Whether checksums are written. A part of a release has none.
    pub(super) fn is_complete(&self) -> bool {
        Kind::all().iter().all(|kind| self.kinds.contains(kind))
    }
}

/// Registries require a semantic version. A part of it is also part of file names and scripts.
fn check(version: &str) -> anyhow::Result<()> {
    let (number, suffix) = match version.split_once('-') {
        Some((number, suffix)) => (number, Some(suffix)),
        None => (version, None),
    };
    let numbers: Vec<_> = number.split('.').collect();
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_suffix = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
    };
    ensure!(
        numbers.len() == 3 && numbers.iter().all(is_number) && suffix.is_none_or(is_suffix),
        "{version:?} is not a valid version: expected 1.2.3 or 1.2.3-rc.1"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn only_selects_kinds_without_checksums() {
        let all = parse("").unwrap();
        assert!(all.is_complete(), "{all:?}");
        let some = parse("--only deb --only rpm --version 1.2.3-rc.1").unwrap();
        assert!(!some.is_complete(), "{some:?}");
        assert_eq!(some.kinds, [Kind::Deb, Kind::Rpm]);
        assert!(parse("--only zip").is_err() && parse("--out").is_err());
    }

    #[test]
    fn version_must_be_semantic() {
        for wrong in ["1.2", "1.2.3.4", "v1.2.3", "1.2.x", "1.2.3-", "1.2.3-a/b", "1.2.3 4", ""] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert!(check("0.1.0").is_ok() && check("10.0.1-rc.1").is_ok());
    }
}

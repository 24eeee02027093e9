//! The core of this run, and the differences between cores that tests depend on.
//!
//! A test reads its expected result here. It never accepts two results.

use std::{process::Command, sync::OnceLock};

use super::binaries;

/// The product of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    Terraform,
    OpenTofu,
}

/// A core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Core {
    pub product: Product,
    /// Major and minor.
    pub version: (u32, u32),
    /// The third number. A release candidate has that of its release.
    pub patch: u32,
}

/// The core of this run.
///
/// # Panics
///
/// If there is none, or it fails.
#[expect(clippy::expect_used, reason = "a test cannot go on without a core")]
pub fn core() -> Core {
    static CORE: OnceLock<Core> = OnceLock::new();
    *CORE.get_or_init(|| {
        let program = binaries::terraform().expect("a core");
        let mut command = Command::new(program);
        command.arg("version").env("TF_CLI_CONFIG_FILE", "/dev/null").env("CHECKPOINT_DISABLE", "1");
        let output = command.output().expect("the core starts");
        let text = String::from_utf8_lossy(&output.stdout);
        Core::parse(&text).unwrap_or_else(|| unknown(&text))
    })
}

/// Panics unless this core has the feature that the calling test needs. `cargo xtask test` runs such a test only on cores with that feature,
/// from the table in `xtask/src/test/cores.rs`, so that a test that did nothing never counts as passed.
#[track_caller]
pub fn need(has_feature: bool) {
    assert!(has_feature, "{:?} cannot run this test: use `cargo xtask test -- NAME`", core());
}

#[expect(clippy::panic, reason = "a test cannot go on without a core")]
fn unknown(text: &str) -> Core {
    panic!("not a version of Terraform or OpenTofu: {text:?}")
}

impl Core {
    /// `Terraform v1.11.4`, `OpenTofu v1.13.0-dev`.
    fn parse(text: &str) -> Option<Self> {
        let (name, version) = text.lines().next()?.split_once(" v")?;
        let product = match name {
            "Terraform" => Product::Terraform,
            "OpenTofu" => Product::OpenTofu,
            _ => return None,
        };
        let mut parts = version.split('.');
        let version = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let patch = parts.next()?.split('-').next()?.parse().ok()?;
        Some(Self { product, version, patch })
    }

    /// Whether actions can be invoked.
    pub fn has_actions(self) -> bool {
        self.product == Product::Terraform && self.version >= (1, 14)
    }

    /// Whether the core stores the private data of a plan, and returns it in the apply (protocol 6.11). The provider then knows in each call whether
    /// it is of a plan or of an apply: it refuses plans about which it can only warn on other cores, and needs no refresh to start drains.
    pub fn stores_planned_private(self) -> bool {
        self.product == Product::Terraform && self.version >= (1, 16)
    }

    /// Whether Ctrl-C while several creates return a state with an error crashes the core, which then writes none of them to the state. The last
    /// version that was seen with this defect is 1.16.4.
    pub fn crashes_on_stopped_creates(self) -> bool {
        self.product == Product::Terraform && self.version == (1, 16) && self.patch <= 4
    }

    /// The registry of a provider whose source has no registry.
    pub fn registry(self) -> &'static str {
        match self.product {
            Product::Terraform => "registry.terraform.io",
            Product::OpenTofu => "registry.opentofu.org",
        }
    }

    /// Whether `test` has `mock_provider`.
    pub fn has_mock_providers(self) -> bool {
        self.since((1, 7), (1, 8))
    }

    /// Whether a `removed` block can remove a resource from the state only (`destroy = false`).
    pub fn has_removed_blocks(self) -> bool {
        self.since((1, 7), (1, 10))
    }

    /// Whether a resource's `lifecycle` supports `destroy = false`, and plans support `-exclude`.
    pub fn has_destroy_false_and_exclude(self) -> bool {
        self.product == Product::OpenTofu && self.version >= (1, 12)
    }

    /// Whether variables can be ephemeral.
    pub fn has_ephemeral_values(self) -> bool {
        self.since((1, 10), (1, 11))
    }

    /// Whether the state on disk has each new object immediately. OpenTofu writes at the earliest 20 s later, so a killed one loses
    /// its last objects.
    pub fn saves_each_step(self) -> bool {
        self.product == Product::Terraform
    }

    fn since(self, terraform: (u32, u32), opentofu: (u32, u32)) -> bool {
        match self.product {
            Product::Terraform => self.version >= terraform,
            Product::OpenTofu => self.version >= opentofu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_version_is_parsed() {
        let core = Core::parse("Terraform v1.6.6\non linux_amd64\n").unwrap();
        assert_eq!(core, Core { product: Product::Terraform, version: (1, 6), patch: 6 });
        assert!(core.saves_each_step() && !core.stores_planned_private());
        for (text, crashes) in [("1.16.0-rc2", true), ("1.16.4", true), ("1.16.5", false), ("1.15.5", false)]
        {
            let core = Core::parse(&format!("Terraform v{text}\non linux_amd64\n")).unwrap();
            assert_eq!(core.crashes_on_stopped_creates(), crashes, "{text}");
            assert_eq!(core.stores_planned_private(), text.starts_with("1.16"), "{text}");
        }
        let core = Core::parse("OpenTofu v1.13.0-dev\non linux_amd64\n").unwrap();
        assert_eq!(core, Core { product: Product::OpenTofu, version: (1, 13), patch: 0 });
        assert!(core.has_ephemeral_values() && !core.stores_planned_private());
        assert_eq!(Core::parse("bash: no such file"), None);
    }
}

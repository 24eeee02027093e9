//! What is printed on stdout once we listen: the line that go-plugin waits for, or what a developer needs.

use std::{io, io::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

/// go-plugin's handshake: its core protocol, Terraform's protocol, the address, the transport, and our certificate.
pub(super) fn handshake(path: &Path, certificate: Option<&[u8]>) -> String {
    let certificate = certificate.map(|der| STANDARD_NO_PAD.encode(der)).unwrap_or_default();
    format!("1|6|unix|{}|grpc|{certificate}", path.display())
}

/// A shell line after which Terraform attaches to this process instead of starting its own.
pub(super) fn reattach(address: &str, path: &Path) -> String {
    let providers = serde_json::json!({ address: {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": std::process::id(),
        // Or else the first command that attaches would end us.
        "Test": true,
        "Addr": { "Network": "unix", "String": path },
    }});
    format!("export TF_REATTACH_PROVIDERS='{providers}'")
}

pub(super) fn print(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_line_has_six_fields() {
        assert_eq!(
            handshake(Path::new("/tmp/x/s"), Some(b"\x01\x02\x03\x04")),
            "1|6|unix|/tmp/x/s|grpc|AQIDBA"
        );
        assert_eq!(handshake(Path::new("/tmp/x/s"), None), "1|6|unix|/tmp/x/s|grpc|");
    }
}

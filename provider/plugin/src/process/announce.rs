//! The lines on stdout: go-plugin's handshake, or the instructions for a developer.

use std::{io, io::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

/// go-plugin's handshake: core protocol, Terraform's protocol, address, transport, and the server certificate.
pub(super) fn handshake(path: &Path, certificate: Option<&[u8]>) -> String {
    let certificate = certificate.map(|der| STANDARD_NO_PAD.encode(der)).unwrap_or_default();
    format!("1|6|unix|{}|grpc|{certificate}", path.display())
}

/// The shell command that lets Terraform attach to this process instead of starting one.
pub(super) fn reattach(address: &str, path: &Path) -> String {
    let providers = serde_json::json!({ address: {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": std::process::id(),
        // Otherwise, the first command that attaches would end this process.
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

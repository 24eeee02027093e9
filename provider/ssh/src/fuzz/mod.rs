//! The fuzz targets: one function for each parser of external data.
//!
//! A target panics if its parser violates a property. The test suite runs the targets for a few seconds with inputs derived from real files
//! (`GRIT_FUZZ_SECONDS` sets the time, `GRIT_FUZZ_SEED` repeats a run); the crate in `tests/fuzz/` runs them with libFuzzer. Each finding
//! becomes a test next to the parser.

#[cfg(test)]
mod grow;
#[cfg(test)]
mod tests;

use crate::{
    address::{HostPort, WrapperAddress},
    command::template::Template,
    keys,
    secret::Secret,
    target::{Login, Target},
    trust::{HostKey, HostTrust},
};

/// The last line of every known_hosts file.
const LAST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIElNXKZbIZrqk5rLVCYc1gTSkSkJy1V/dCsWHxKqWHVz";
/// In no known_hosts file.
const UNKNOWN_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHTbRzYTfK3c2W8H5lGPKh3d6Q/9gJ1JDtRHZvMOGhZq";
/// Shorter matches with the text of a key can be coincidence.
const MIN_QUOTE: usize = 20;

/// A known_hosts file with any content: valid lines in it are found, and no key is accepted that is not in it.
#[expect(clippy::panic, reason = "a fuzzer wants panics")]
pub fn known_hosts(bytes: &[u8]) {
    let (Some(last), Some(unknown)) = (HostKey::parse(LAST_KEY), HostKey::parse(UNKNOWN_KEY)) else {
        panic!("the keys of this file cannot be read");
    };
    for host in ["h", "h:2222", "10.0.0.1", "a.example.com", "2001:db8::7"] {
        let host = self::host(host);
        // An invalid line that may revoke a key.
        let Ok(alone) = HostTrust::of_text(bytes, &host) else { return };
        assert!(alone.verify(&unknown).is_err(), "a key was accepted that no line holds");
        assert!(!alone.is_authority(&unknown));
        let name = crate::trust::lookup_name(host.host(), host.port());
        let text = [bytes, format!("\n{name} {LAST_KEY}\n").as_bytes()].concat();
        let Ok(trust) = HostTrust::of_text(&text, &host) else { panic!("a valid line is an error") };
        assert!(trust.verify(&last).is_ok(), "a line was not found");
        if let Err(refusal) = trust.verify(&unknown) {
            assert!(!refusal.expected.is_empty(), "the last line is a key that was expected");
        }
    }
}

/// Any text as a key: it is loaded or rejected, with the same result when it is indented, and the error contains no part of it.
#[expect(clippy::panic, reason = "a fuzzer wants panics")]
pub fn private_key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Without a passphrase: a key derivation can take any time.
    let load = |text: &str| keys::load(&Secret::new(text), None, "fuzz");
    match &load(&text) {
        Ok(key) => {
            // A byte order mark is one only at the beginning.
            let again = load(&format!("\n\n{}\n\n", crate::user_files::without_mark(&text)));
            let Ok(again) = again else { panic!("blank lines around it make a key unusable: {again:?}") };
            assert_eq!(key.fingerprint(), again.fingerprint());
        }
        Err(error) => {
            let shown = format!("{error} {error:?}");
            for line in text.lines() {
                let body: Vec<char> = line.trim().chars().collect();
                for part in body.chunks_exact(MIN_QUOTE) {
                    let part: String = part.iter().collect();
                    let is_base64 = part.chars().all(|it| it.is_ascii_alphanumeric() || "+/=".contains(it));
                    assert!(!is_base64 || !shown.contains(&part), "an error quotes the key");
                }
            }
        }
    }
}

/// Any text as a template, one argument per line: it is expanded or rejected. Text without placeholders is not changed, and values that a
/// program could misinterpret are rejected.
pub fn template(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let arguments: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let Ok(template) = Template::parse(&arguments) else { return };
    let expand = |instance_name: &str| template.expand(&target(instance_name));
    let plain = expand("plain");
    if let Ok(expanded) = &plain {
        assert_eq!(expanded.len(), arguments.len(), "an argument more or less");
        for (before, after) in arguments.iter().zip(expanded) {
            assert!(before.contains("{{") || before == after, "a text without names was changed");
        }
    }
    // Values are not expanded again; values with dashes and control characters are rejected.
    if let (Ok(plain), Ok(braces)) = (&plain, expand("{{host}}")) {
        let uses_it = plain != &braces;
        for (plain, braces) in plain.iter().zip(&braces) {
            assert!(plain == braces || braces.contains("{{host}}"), "a value was expanded again");
        }
        for hostile in ["-oProxyCommand=x", "a\nb", "a\0b"] {
            assert!(!uses_it || expand(hostile).is_err(), "a hostile value got through");
        }
    }
}

fn target(instance_name: &str) -> Target {
    Target {
        manager: "m1".to_owned(),
        instance_name: instance_name.to_owned(),
        instance_id: Some("i-07".to_owned()),
        address: host("h:2222"),
        wrapper_address: WrapperAddress::Unix("/run/w.sock".to_owned()),
        login: Login { username: Some("deploy".to_owned()), credentials: None },
        host_key: None,
        hops: Vec::new(),
    }
}

#[expect(clippy::panic, reason = "only for the texts of this file")]
fn host(text: &str) -> HostPort {
    text.parse().unwrap_or_else(|error| panic!("{text} cannot be read: {error}"))
}

//! Keys and fingerprints in attributes: `host_key`, `ssh.host_keys`.

use super::*;

#[test]
fn pins_accept_keys_and_fingerprints() {
    let verify = |pin: &str| {
        let options = TrustSources { host_keys: vec![pin.to_owned()], ..TrustSources::default() };
        HostTrust::gather(&options, None, &"h".parse().unwrap()).map(|it| it.verify(&key(ED25519)).is_ok())
    };
    let fingerprint = key(ED25519).fingerprint();
    for accepted in [
        ED25519.to_owned(),
        format!("{ED25519} a comment\n"),
        format!("h {ED25519}"),
        fingerprint.clone(),
        format!("{fingerprint}="),
        // The output of `ssh-keygen -lf`, which the error for an unknown key recommends.
        format!("256 {fingerprint} root@h (ED25519)"),
        fingerprint.replace("SHA256:", "sha256:"),
        fingerprint.trim_start_matches("SHA256:").to_owned(),
        format!("{OTHER}\n{ED25519}\n"),
    ] {
        assert_eq!(verify(&accepted), Ok(true), "{accepted}");
    }
    assert_eq!(verify(OTHER), Ok(false));
    assert_eq!(verify(&key(OTHER).fingerprint()), Ok(false));
    for wrong in ["SHA256:short", "MD5:16:27:ac:a5", "ssh-ed25519", "hello"] {
        assert_eq!(verify(wrong).unwrap_err().attribute.to_string(), "ssh.host_keys[0]", "{wrong}");
    }
    for (wrong, words) in [
        (&format!("@cert-authority * {ED25519}")[..], "`ssh.host_ca`"),
        ("MD5:16:27:ac:a5", "MD5 fingerprints are not supported"),
        ("256 MD5:16:27:ac:a5 root@h (ED25519)", "MD5 fingerprints are not supported"),
        ("h IN SSHFP 4 2 0123abcd", "SSHFP records are not supported"),
        ("256 SHA256:short root@h (ED25519)", "is not a valid fingerprint"),
    ] {
        let problem = verify(wrong).unwrap_err().problem;
        assert!(problem.contains(words), "{wrong}: {problem}");
    }
}

/// A key for any host shows nothing about the key of this host.
#[test]
fn key_is_changed_only_against_a_key_of_this_host() {
    use HostKeyVerdict::{Changed, Unknown};
    let verify = |pinned: Option<&str>, known_hosts: &str| {
        let options = TrustSources {
            known_hosts: Some(known_hosts.to_owned()),
            host_keys: vec![OTHER.to_owned(), key(ECDSA).fingerprint()],
            ..TrustSources::default()
        };
        let attribute = Attribute::Hop(0, "host_key");
        let pinned = pinned.map(|keys| Pinned { attribute, keys: keys.to_owned() });
        let trust = HostTrust::gather(&options, pinned.as_ref(), &"h:2222".parse().unwrap()).unwrap();
        trust.verify(&key(ED25519)).map_err(|refusal| (refusal.verdict, refusal.expected.len()))
    };
    for (pinned, known_hosts, expected) in [
        (None, String::new(), Err((Unknown, 0))),
        (None, format!("g {OTHER}"), Err((Unknown, 0))),
        (None, format!("h {OTHER}"), Err((Unknown, 0))),
        (None, format!("h {ED25519}"), Ok(())),
        (None, format!("[h]:2222 {OTHER}"), Err((Changed, 1))),
        (Some(OTHER), String::new(), Err((Changed, 1))),
    ] {
        assert_eq!(verify(pinned, &known_hosts), expected, "{pinned:?} {known_hosts:?}");
    }
}

/// The key types of a host are tried until one is accepted.
#[test]
fn rejected_key_type_is_excluded_also_for_a_fingerprint_of_any_host() {
    let options = TrustSources { host_keys: vec![key(ECDSA).fingerprint()], ..TrustSources::default() };
    let mut trust = HostTrust::gather(&options, None, &"h".parse().unwrap()).unwrap();
    let refusal = trust.verify(&key(ED25519)).unwrap_err();
    assert!(trust.exclude(&refusal) && !trust.exclude(&refusal));
}

#[test]
fn byte_order_mark_before_a_key_is_skipped() {
    assert_eq!(verdict(&format!("\u{feff}h {ED25519}"), "h", ED25519), None);
    assert_eq!(check_pins(&format!("\u{feff}{ED25519}")), Ok(()));
    assert_eq!(authority(&format!("\u{feff}{ED25519}")).unwrap(), key(ED25519));
}

/// `host_key` of a manager replaces all other sources for this host.
#[test]
fn host_key_of_entry_overrides_other_sources() {
    let options = TrustSources {
        known_hosts: Some(format!("h {OTHER}\n@cert-authority * {OTHER}\n@revoked h {ECDSA}\n")),
        host_keys: vec![OTHER.to_owned()],
        host_ca: vec![OTHER.to_owned()],
        ..TrustSources::default()
    };
    let verify = |pin: Option<&str>, shown: &str| {
        let pinned =
            pin.map(|keys| Pinned { attribute: Attribute::Manager("host_key"), keys: keys.to_owned() });
        let trust = HostTrust::gather(&options, pinned.as_ref(), &"h".parse().unwrap()).unwrap();
        assert_eq!(trust.has_authorities(), !pin.is_some_and(|pin| pin.contains(' ')));
        trust.verify(&key(shown)).map_err(|refusal| refusal.verdict)
    };
    assert_eq!(verify(Some(ED25519), ED25519), Ok(()));
    assert_eq!(verify(Some(ED25519), OTHER), Err(HostKeyVerdict::Changed));
    assert_eq!(verify(Some(ECDSA), ECDSA), Err(HostKeyVerdict::Revoked), "a pinned key can be revoked");
    assert_eq!(verify(None, OTHER), Ok(()));
}

/// An empty value that became known only in the apply: the key of another source must not be accepted in its place.
#[test]
fn pin_without_key_is_an_error() {
    let options = TrustSources { insecure_ignore_host_key: true, ..TrustSources::default() };
    for keys in ["", " \n", "\n# later\n"] {
        let pinned = Pinned { attribute: Attribute::Manager("host_key"), keys: keys.to_owned() };
        let error = HostTrust::gather(&options, Some(&pinned), &"h".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "host_key: it contains no host key; set a key, or null", "{keys:?}");
    }
}

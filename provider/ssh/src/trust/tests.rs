use std::{collections::BTreeSet, process::Command};

use proptest::prelude::*;

use super::*;

const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIElNXKZbIZrqk5rLVCYc1gTSkSkJy1V/dCsWHxKqWHVz";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHTbRzYTfK3c2W8H5lGPKh3d6Q/9gJ1JDtRHZvMOGhZq";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGFyPbMSOCHjTHEyMpq5s2lGy1LcHhXlUyCUWXNwUfDzbJ9mTuXi0wZ4ZlFkZ3a5G1MLWsNFCYlVyjtJ3o3QJzY=";

fn key(line: &str) -> HostKey {
    HostKey::parse(line).unwrap()
}

fn trust(text: &[u8], host: &str) -> HostTrust {
    HostTrust::of_text(text, &host.parse().unwrap()).unwrap()
}

/// As in OpenSSH's client: only the key and the hosts count.
#[test]
fn revoked_line_with_comment_in_another_encoding_counts() {
    let text = [format!("h {ED25519}\n@revoked h {ED25519} J").as_bytes(), b"\xfcrgen\n"].concat();
    let refusal = trust(&text, "h").verify(&key(ED25519)).unwrap_err();
    assert_eq!(refusal.verdict, HostKeyVerdict::Revoked);
}

fn verdict(text: &str, host: &str, shown: &str) -> Option<HostKeyVerdict> {
    trust(text.as_bytes(), host).verify(&key(shown)).err().map(|refusal| refusal.verdict)
}

/// Each case of the report, with the result of OpenSSH.
#[test]
fn known_hosts_verdicts_follow_openssh_rules() {
    use HostKeyVerdict::{Changed, Revoked, Unknown};
    let (hashed, hashed_port) = (hash("h"), hash("[h]:2222"));
    let not_a_key = "ssh-ed25519 AAAA";
    for (case, text, host, expected) in [
        ("plain", format!("h {ED25519}"), "h", None),
        ("a different key", format!("h {OTHER}"), "h", Some(Changed)),
        ("another host", format!("g {ED25519}"), "h", Some(Unknown)),
        ("nothing", String::new(), "h", Some(Unknown)),
        ("with port", format!("[h]:2222 {ED25519}"), "h:2222", None),
        ("port 22 in brackets", format!("[h]:22 {ED25519}"), "h", Some(Unknown)),
        ("another port", format!("[h]:2222 {ED25519}"), "h:2223", Some(Unknown)),
        ("without port, the key fits", format!("h {ED25519}"), "h:2222", None),
        ("without port, another key", format!("h {OTHER}"), "h:2222", Some(Unknown)),
        ("without port beside one with", format!("[h]:2222 {OTHER}\nh {ED25519}"), "h:2222", Some(Changed)),
        ("list", format!("a,h,b {ED25519}"), "h", None),
        ("hashed", format!("{hashed} {ED25519}"), "h", None),
        ("hashed with port", format!("{hashed_port} {ED25519}"), "h:2222", None),
        ("hashed, another", format!("{hashed} {ED25519}"), "g", Some(Unknown)),
        ("hashed, upper case asked", format!("{hashed} {ED25519}"), "H", None),
        ("CRLF", format!("h {ED25519}\r\n"), "h", None),
        ("comment behind", format!("h {ED25519} some words"), "h", None),
        ("comment lines", format!("# h {OTHER}\n\n   # x\nh {ED25519}"), "h", None),
        ("revoked after plain", format!("h {ED25519}\n@revoked h {ED25519}"), "h", Some(Revoked)),
        ("revoked before plain", format!("@revoked * {ED25519}\nh {ED25519}"), "h", Some(Revoked)),
        ("revoked for others", format!("@revoked g {ED25519}\nh {ED25519}"), "h", None),
        ("revoked without port", format!("h {ED25519}\n@revoked h {ED25519}"), "h:2222", Some(Revoked)),
        (
            "revoked without port, known with port",
            format!("[h]:2222 {ED25519}\n@revoked h {ED25519}"),
            "h:2222",
            Some(Revoked),
        ),
        ("second key of a type", format!("h {OTHER}\nh {ED25519}"), "h", None),
        ("star", format!("*.example.com {ED25519}"), "a.example.com", None),
        ("question mark", format!("mgr-? {ED25519}"), "mgr-7", None),
        ("excluded", format!("*,!h {ED25519}"), "h", Some(Unknown)),
        ("upper case written", format!("H.Example.COM {ED25519}"), "h.example.com", None),
        ("upper case asked", format!("h.example.com {ED25519}"), "H.Example.com", None),
        ("tabs", format!("h\t{}", ED25519.replace(' ', "\t")), "h", None),
        ("leading space", format!("  h {ED25519}"), "h", None),
        ("two spaces", format!("h  {}", ED25519.replace(' ', "  ")), "h", None),
        ("bad line before", format!("h {not_a_key}\nh {ED25519}"), "h", None),
        ("unknown type before", format!("h ssh-future AAAA\nh {ED25519}"), "h", None),
        (
            "type that lies",
            format!("h {}", ED25519.replacen("ssh-ed25519", "ssh-rsa", 1)),
            "h",
            Some(Unknown),
        ),
        ("authority is no host key", format!("@cert-authority h {ED25519}"), "h", Some(Unknown)),
        ("another type only", format!("h {ECDSA}"), "h", Some(Changed)),
        ("pattern with port", format!("[*]:2222 {ED25519}"), "h:2222", None),
        ("IPv6", format!("2001:db8::7 {ED25519}"), "2001:db8::7", None),
        ("IPv6 with port", format!("[2001:db8::7]:2222 {ED25519}"), "[2001:db8::7]:2222", None),
    ] {
        assert_eq!(verdict(&text, host, ED25519), expected, "{case}: {text}");
    }
}

/// OpenSSH ignores these lines, also those that were to revoke a key.
#[test]
fn invalid_marker_or_revocation_is_an_error() {
    let blob = ED25519.split(' ').nth(1).unwrap();
    for (line, shown) in [
        (format!("@REVOKED h {ED25519}"), r#"the marker "@REVOKED" is not valid"#),
        (format!("  @Revoked * {ED25519}"), r#"the marker "@Revoked" is not valid"#),
        (format!("@Cert-Authority h {ED25519}"), r#"the marker "@Cert-Authority" is not valid"#),
        (format!("@foo g {ED25519}"), r#"the marker "@foo" is not valid"#),
        (format!("@ revoked h {ED25519}"), r#"the marker "@" is not valid"#),
        (format!("@revoked @cert-authority h {ED25519}"), r#"the marker "@cert-authority" is not valid"#),
        (format!("@cert-authority @revoked h {ED25519}"), r#"the marker "@revoked" is not valid"#),
        ("@revoked".to_owned(), "must be followed by host names"),
        ("@revoked h ssh-ed25519 AAAA".to_owned(), "must be followed by host names"),
        (format!("@revoked h {blob}"), "must be followed by host names"),
        (format!("@revoked |1|? {ED25519}"), "must be followed by host names"),
    ] {
        let text = format!("h {ED25519}\n{line}\n");
        let error = HostTrust::of_text(text.as_bytes(), &"h".parse().unwrap()).unwrap_err();
        assert!(error.starts_with("line 2: ") && error.contains(shown), "{line}: {error}");
        assert_eq!(check_known_hosts(text.as_bytes()), Err(error.clone()), "{line}");

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let named = format!("{}, {error}", file.path().display());
        assert_eq!(crate::check::known_hosts_file(file.path()), Err(named.clone()), "{line}");
        // Also where the host key is pinned, and for a file that is read only at the connection.
        let sources =
            TrustSources { known_hosts_files: vec![file.path().to_owned()], ..TrustSources::default() };
        let pinned = Pinned { attribute: Attribute::Manager("host_key"), keys: ED25519.to_owned() };
        for pinned in [None, Some(&pinned)] {
            let invalid = HostTrust::gather(&sources, pinned, &"h".parse().unwrap()).unwrap_err();
            assert_eq!(
                (invalid.attribute.to_string().as_str(), &invalid.problem),
                ("ssh.known_hosts_path", &named)
            );
        }
    }
    // Without effect on the trust in a key.
    for line in ["@cert-authority h ssh-ed25519 AAAA", "# @REVOKED h", "h @foo"] {
        assert_eq!(verdict(&format!("{line}\nh {ED25519}"), "h", ED25519), None, "{line}");
    }
}

#[test]
fn invalid_utf8_invalidates_only_its_line() {
    let text = [b"h \xff\xfe\n".as_slice(), format!("h {ED25519}\n").as_bytes()].concat();
    assert!(trust(&text, "h").verify(&key(ED25519)).is_ok());
}

#[test]
fn refusal_names_known_key_line_and_line_to_add() {
    let text = format!("# comment\n\nh {OTHER}\n");
    let refusal = trust(text.as_bytes(), "h").verify(&key(ED25519)).unwrap_err();
    assert_eq!(refusal.expected[0].source.to_string(), "known_hosts:3");
    assert_eq!(refusal.expected[0].fingerprint, key(OTHER).fingerprint());
    assert_eq!(refusal.line, format!("h {ED25519}"));
}

#[test]
fn key_types_exclude_cert_authorities() {
    let trust = trust(format!("h {ECDSA}\n@cert-authority *.x,h {OTHER}\n").as_bytes(), "h");
    assert_eq!(trust.key_types().collect::<Vec<_>>(), ["ecdsa-sha2-nistp256"]);
    assert!(trust.is_authority(&key(OTHER)) && !trust.is_authority(&key(ED25519)));
}

/// The lines that can be used are counted for each source.
#[test]
fn refusal_counts_host_keys_of_each_source() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("# comment\n\ng {ECDSA}\ng {OTHER}\nh ssh-ed25519\n")).unwrap();
    let path = file.path().display().to_string();
    let searched = |known_hosts: &str| {
        let sources = TrustSources {
            known_hosts: Some(known_hosts.to_owned()),
            known_hosts_variable: true,
            known_hosts_files: vec![file.path().to_owned()],
            ..TrustSources::default()
        };
        let trust = HostTrust::gather(&sources, None, &"h".parse().unwrap()).unwrap();
        trust.verify(&key(ED25519)).unwrap_err().searched
    };
    for (known_hosts, contents) in [
        (path.as_str(), format!("lines: 1, host keys: 0; {PATH}")),
        ("hello\nworld", "lines: 2, host keys: 0".to_owned()),
        ("", "lines: 0, host keys: 0".to_owned()),
        (&format!("g {OTHER}\n"), "lines: 1, host keys: 1".to_owned()),
        (r"h ssh-ed25519 AAAA\ng", format!("lines: 1, host keys: 0; {LITERAL_NEWLINE}")),
    ] {
        let all = [format!("GRIT_SSH_KNOWN_HOSTS ({contents})"), format!("{path} (lines: 3, host keys: 2)")];
        assert_eq!(searched(known_hosts), all);
    }
}

/// Code that reads files or long texts does not run on the async threads.
#[test]
fn files_and_long_texts_need_a_blocking_thread() {
    let silent = TrustSources::default;
    let named = Some("h ssh-ed25519 AAAA".to_owned());
    for (case, options, no_file) in [
        ("text", TrustSources { known_hosts: named.clone(), ..silent() }, true),
        ("much text", TrustSources { known_hosts: Some("#\n".repeat(SHORT_KNOWN_HOSTS)), ..silent() }, false),
        ("pins", TrustSources { host_keys: vec![ED25519.to_owned()], ..silent() }, true),
        (
            "a file beside text",
            TrustSources { known_hosts: named, known_hosts_files: vec!["/nonexistent".into()], ..silent() },
            false,
        ),
    ] {
        assert_eq!(HostTrust::needs_no_file(&options), no_file, "{case}");
    }
}

#[test]
fn unreadable_known_hosts_file_is_named() {
    let options =
        TrustSources { known_hosts_files: vec!["/nonexistent/known".into()], ..TrustSources::default() };
    let trust = HostTrust::gather(&options, None, &"h".parse().unwrap()).unwrap();
    let refusal = trust.verify(&key(ED25519)).unwrap_err();
    assert_eq!(refusal.searched, ["/nonexistent/known (No such file or directory)"]);
}

/// `ssh-keygen -F` finds the same lines for the same names.
#[test]
fn known_hosts_lookup_agrees_with_ssh_keygen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("known_hosts");
    let text = [
        format!("h {ED25519}"),
        format!("H.Example.COM {ED25519}"),
        format!("*.example.com,!bad.example.com {OTHER}"),
        format!("[h]:2222,[h]:22 {ED25519}"),
        format!("{} {ED25519}", hash("hashed")),
        format!("{} {ED25519}", hash("[hashed]:2222")),
        format!("mgr-? {ECDSA}"),
        format!("a\t{ED25519}"),
        format!("  spaced   {}", ED25519.replace(' ', "  ")),
        "broken ssh-ed25519 AAAA".to_owned(),
        format!("# comment {ED25519}"),
        format!("crlf {ED25519}\r"),
        format!("@revoked gone {ED25519}"),
        format!("@cert-authority *.ca {ED25519}"),
    ]
    .join("\n");
    std::fs::write(&file, &text).unwrap();
    let mut found_some = 0;
    for host in [
        "h",
        "H",
        "h:2222",
        "h:22",
        "h.example.com",
        "a.example.com",
        "bad.example.com",
        "A.EXAMPLE.com",
        "hashed",
        "HASHED",
        "hashed:2222",
        "mgr-1",
        "mgr-12",
        "a",
        "spaced",
        "comment",
        "crlf",
        "gone",
        "x.ca",
        "zzz",
    ] {
        let address: HostPort = host.parse().unwrap();
        let name = lookup_name(address.host(), address.port());
        let ours: BTreeSet<usize> = known_hosts::parse(text.as_bytes())
            .map(Result::unwrap)
            .filter(|(_, line)| line.hosts.match_name(&name))
            .map(|(number, _)| number)
            .collect();
        // `-F` takes a name as it is written; making it lower case and putting brackets to a port is ssh's part.
        let output = Command::new("ssh-keygen").arg("-F").arg(&name).arg("-f").arg(&file).output().unwrap();
        let theirs: BTreeSet<usize> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split("found: line ").nth(1)?.split_whitespace().next()?.parse().ok())
            .collect();
        assert_eq!(ours, theirs, "{host}");
        found_some += usize::from(!ours.is_empty());
    }
    assert!(found_some > 10);
}

/// A host name hashed as by `ssh-keygen -H`, with a fixed salt.
fn hash(name: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use hmac::{Hmac, KeyInit, Mac};
    let salt = [7; 20];
    let mac = Hmac::<sha1::Sha1>::new_from_slice(&salt).unwrap().chain_update(name.as_bytes()).finalize();
    format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(mac.into_bytes()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(grit_testkit::rounds(500, 2_000)))]

    /// Whatever stands in a file, nothing breaks, and a good line at its end is found.
    #[test]
    fn arbitrary_bytes_before_a_line_keep_it_valid(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = [noise, format!("\nh {ED25519}\n").into_bytes()].concat();
        if let Ok(trust) = HostTrust::of_text(&text, &"h".parse().unwrap()) {
            prop_assert!(trust.verify(&key(ED25519)).is_ok());
        }
    }

    /// Lines that are nearly right are read without harm, and a key is accepted only by a line that contains it.
    #[test]
    fn malformed_known_hosts_lines_never_match(
        marker in "(@revoked |@cert-authority |@x )?",
        hosts in "[|*?!,a-zH1\\[\\]:=]{0,12}",
        space in "[ \t]{1,3}",
        key_type in "ssh-ed25519|ssh-rsa|",
        blob in "[A-Za-z0-9+/=]{0,80}",
    ) {
        let accepts = |text: String| {
            let trust = HostTrust::of_text(text.as_bytes(), &"h".parse().unwrap());
            trust.is_ok_and(|trust| trust.verify(&key(ED25519)).is_ok())
        };
        let malformed = format!("{marker}{hosts}{space}{key_type}{space}{blob}\n");
        prop_assert!(!accepts(malformed));
        let with_key = format!("{marker}{hosts}{space}{ED25519}\n");
        prop_assert!(!accepts(with_key) || marker.is_empty());
    }

    #[test]
    fn arbitrary_pin_is_parsed_or_rejected(text in "(SHA256:)?[A-Za-z0-9+/= ]{0,60}|\\PC{0,40}") {
        if let Ok(pin) = text.parse::<Pin>() {
            prop_assert!(pin.fingerprint().starts_with("SHA256:"));
        }
    }
}

mod pins;

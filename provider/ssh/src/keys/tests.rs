use std::{path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use super::*;

mod kinds;

fn generate(dir: &Path, name: &str, args: &[&str]) -> String {
    let path = dir.join(name);
    let output = Command::new("ssh-keygen").args(["-q", "-f"]).arg(&path).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(path).unwrap()
}

fn public(dir: &Path, name: &str) -> String {
    let output =
        Command::new("ssh-keygen").args(["-l", "-f"]).arg(dir.join(format!("{name}.pub"))).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split_whitespace().nth(1).unwrap().to_owned()
}

fn loaded(text: &str, passphrase: Option<&str>) -> Result<String, KeyError> {
    let passphrase = passphrase.map(Secret::new);
    load(&Secret::new(text), passphrase.as_ref(), "test").map(|key| key.fingerprint())
}

/// Keys of ssh-keygen in each format, with and without a passphrase.
#[test]
fn ssh_keygen_formats_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let encrypted = |cipher| vec!["-t", "ed25519", "-N", "geheim", "-Z", cipher, "-a", "1"];
    for (name, args, passphrase) in [
        ("ed25519", vec!["-t", "ed25519", "-N", ""], None),
        ("ecdsa256", vec!["-t", "ecdsa", "-b", "256", "-N", ""], None),
        ("ecdsa384", vec!["-t", "ecdsa", "-b", "384", "-N", ""], None),
        ("ecdsa521", vec!["-t", "ecdsa", "-b", "521", "-N", ""], None),
        ("rsa", vec!["-t", "rsa", "-b", "2048", "-N", ""], None),
        ("aes-ctr", encrypted("aes256-ctr"), Some("geheim")),
        ("aes-cbc", encrypted("aes256-cbc"), Some("geheim")),
        ("aes-gcm", encrypted("aes256-gcm@openssh.com"), Some("geheim")),
        ("chacha", encrypted("chacha20-poly1305@openssh.com"), Some("geheim")),
        ("rsa-pem", vec!["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", ""], None),
        ("rsa-pem-encrypted", vec!["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "geheim"], Some("geheim")),
        ("ec-pem", vec!["-t", "ecdsa", "-m", "PEM", "-N", ""], None),
        ("rsa-pkcs8", vec!["-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", ""], None),
        ("ec-pkcs8", vec!["-t", "ecdsa", "-m", "PKCS8", "-N", ""], None),
    ] {
        let text = generate(dir.path(), name, &args);
        let expected = Ok(public(dir.path(), name));
        assert_eq!(loaded(&text, passphrase), expected, "{name}");
        if passphrase.is_none() {
            assert_eq!(
                loaded(&text, Some("not needed")),
                expected,
                "{name} with a passphrase that is not needed"
            );
        } else {
            let missing = loaded(&text, None).unwrap_err();
            assert!(matches!(missing, KeyError::NoPassphrase { .. }), "{name}: {missing:?}");
            let wrong = loaded(&text, Some("falsch")).unwrap_err();
            assert!(matches!(wrong, KeyError::WrongPassphrase { .. }), "{name}: {wrong:?}");
        }
    }
}

/// Made with `puttygen -t ed25519 --ppk-param memory=64,passes=1,parallelism=1` and the passphrase "geheim".
const PUTTY: &str = "\
PuTTY-User-Key-File-3: ssh-ed25519
Encryption: aes256-cbc
Comment: test
Public-Lines: 2
AAAAC3NzaC1lZDI1NTE5AAAAILIPJx16bbLpCFfh26DUg041EvCSCl/WYH/W2K2L
wi4Q
Key-Derivation: Argon2id
Argon2-Memory: 64
Argon2-Passes: 1
Argon2-Parallelism: 1
Argon2-Salt: 4f84aff8865817b65155533a88b03aa3
Private-Lines: 1
LXKZhaM7y83p9rlaRCcgjSMHbCAUxEYIcHjaXaPygdJT08OpE97v7KPWB2WI8WNm
Private-MAC: 492a0ebc938c8ad8d0d5258ca12333133fa477d9ff687b17f64d08d485208ddf
";

/// `ssh-keygen` cannot read a key of PuTTY.
#[test]
fn putty_key_error_names_puttygen() {
    let fingerprint = "SHA256:Y0S6frds9GtNdK6+JiuUeGJJwP2cMEC/WBUX2vwjmsk";
    assert_eq!(loaded(PUTTY, Some("geheim")), Ok(fingerprint.to_owned()));
    let error = loaded(PUTTY, Some("falsch")).unwrap_err();
    assert!(
        matches!(&error, KeyError::WrongPassphrase { check, .. } if check.starts_with("puttygen ")),
        "{error:?}"
    );
    let damaged = PUTTY.replace("aes256-cbc", "none");
    let error = loaded(&damaged, None).unwrap_err();
    assert!(
        matches!(&error, KeyError::Unusable { check, .. } if check.starts_with("puttygen ")),
        "{error:?}"
    );
}

/// The error for an unreadable key names its format and the next step, and never contains the text.
#[test]
fn unusable_key_error_names_format_and_fix() {
    let dir = tempfile::tempdir().unwrap();
    let des = generate(dir.path(), "3des", &["-t", "ed25519", "-N", "geheim", "-Z", "3des-cbc", "-a", "1"]);
    let ec = generate(dir.path(), "ec", &["-t", "ecdsa", "-m", "PEM", "-N", "geheim"]);
    for (text, passphrase) in [(des, Some("geheim")), (ec, Some("geheim"))] {
        let error = loaded(&text, passphrase).unwrap_err().to_string();
        assert!(error.contains("ssh-keygen -p") || error.contains("passphrase"), "{error}");
    }
    let (encoded, no_label) = {
        let pem = generate(dir.path(), "plain", &["-t", "ed25519", "-N", ""]);
        let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with("---")).collect();
        (STANDARD.encode(&pem), lines.join("\n"))
    };
    let pkcs8 = openssl(dir.path(), &["genpkey", "-algorithm", "ed25519"]);
    let der = pkcs8.lines().nth(1).unwrap();
    let wrapped: Vec<&str> = encoded.as_bytes().chunks(76).map(|it| str::from_utf8(it).unwrap()).collect();
    for (text, words) in [
        ("", "it is empty"),
        (" \n\n", "it is empty"),
        (encoded.as_str(), "base64decode()"),
        (&wrapped.join("\n"), "base64decode()"),
        (&STANDARD.encode(PUTTY), "base64decode()"),
        (&no_label, "its first line is missing"),
        (der, "its first line is missing"),
        ("hello", "unknown format"),
        ("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n", "EC parameters"),
        ("c2VjcmV0", "unknown format"),
        ("ssh-ed25519 AAAA", "a public key"),
        ("sk-ssh-ed25519@openssh.com AAAA", "a public key"),
        ("~/.ssh/id_ed25519", "private_key_path"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n", "OpenSSH"),
    ] {
        let error = loaded(text, None).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
        assert!(!error.contains("c2VjcmV0"), "{error}");
    }
}

/// Changes to a key by heredocs.
#[test]
fn indented_key_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        vec!["-t", "ed25519", "-N", ""],
        vec!["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", ""],
        vec!["-t", "ecdsa", "-m", "PKCS8", "-N", ""],
    ] {
        let name = args.join("");
        let text = generate(dir.path(), &name, &args);
        let expected = Ok(public(dir.path(), &name));
        let each_line = |change: &dyn Fn(&str) -> String| text.lines().map(change).collect::<String>();
        for (damage, damaged) in [
            ("none", text.clone()),
            ("indented", each_line(&|line| format!("    {line}\n"))),
            ("tabs", each_line(&|line| format!("\t{line}\n"))),
            ("trailing spaces", each_line(&|line| format!("{line}  \n"))),
            ("carriage returns", each_line(&|line| format!("{line}\r\n"))),
            ("no final newline", text.trim_end().to_owned()),
            ("blank lines around", format!("\n\n{text}\n\n")),
            ("blank lines between", each_line(&|line| format!("{line}\n\n"))),
        ] {
            assert_eq!(loaded(&damaged, None), expected, "{args:?}: {damage}");
        }
        let error = loaded(&each_line(&|line| format!("{line}\\n")), None).unwrap_err().to_string();
        assert!(error.contains("its line breaks are missing"), "{error}");
    }
    let encrypted = generate(dir.path(), "enc", &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "geheim"]);
    let indented: String = encrypted.lines().map(|line| format!("  {line}\n")).collect();
    assert_eq!(loaded(&indented, Some("geheim")), Ok(public(dir.path(), "enc")));
}

#[test]
fn certificate_must_match_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let text = generate(dir.path(), "key", &["-t", "ed25519", "-N", ""]);
    let other = generate(dir.path(), "other", &["-t", "ed25519", "-N", ""]);
    let ca = dir.path().join("other");
    let sign = Command::new("ssh-keygen")
        .args(["-q", "-I", "id", "-n", "deploy", "-s"])
        .args([&ca, &dir.path().join("key.pub")])
        .status()
        .unwrap();
    assert!(sign.success());
    let certificate = std::fs::read_to_string(dir.path().join("key-cert.pub")).unwrap();
    let key = |text: &str| load(&Secret::new(text), None, "test").unwrap();
    assert!(load_certificate(&certificate, &key(&text), "cert").is_ok());
    let error = load_certificate(&certificate, &key(&other), "cert").unwrap_err().to_string();
    assert!(error.contains("a different key"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(grit_testkit::rounds(100, 500)))]

    /// Whatever is given as a key is refused without quoting it, and never panics.
    #[test]
    fn malformed_keys_are_rejected_without_leaking_text(
        label in "OPENSSH PRIVATE KEY|RSA PRIVATE KEY|EC PRIVATE KEY|PRIVATE KEY|ENCRYPTED PRIVATE KEY|X",
        headers in "(Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,[0-9A-F]{0,32}\n\n)?",
        body in "[A-Za-z0-9+/=\n ]{24,300}",
        end in any::<bool>(),
    ) {
        let foot = if end { format!("-----END {label}-----\n") } else { String::new() };
        let text = format!("-----BEGIN {label}-----\n{headers}{body}\n{foot}");
        for passphrase in [None, Some("geheim")] {
            let error = loaded(&text, passphrase).unwrap_err().to_string();
            prop_assert!(!error.contains(body.trim()), "{}", error);
        }
    }

    #[test]
    fn key_loading_never_panics(text in "(-----|BEGIN|END| |\\n|\n|\r|: |[A-Za-z0-9+/=]|\\PC){0,60}") {
        drop(loaded(&text, None));
    }
}

/// A bit that flips anywhere in a key is noticed or harmless, never a panic.
#[test]
fn bit_flips_in_keys_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    for args in [vec!["-t", "ed25519", "-N", ""], vec!["-t", "ecdsa", "-m", "PEM", "-N", ""]] {
        let text = generate(dir.path(), &args.join(""), &args);
        for index in (0..text.len()).step_by(3) {
            let mut bytes = text.clone().into_bytes();
            bytes[index] ^= 1 << (index % 7);
            if let Ok(damaged) = String::from_utf8(bytes) {
                drop(loaded(&damaged, Some("geheim")));
            }
        }
    }
}

fn openssl(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("openssl").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

use std::{path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pkcs8::{
    EncryptedPrivateKeyInfoRef,
    der::Encode as _,
    pkcs5::{EncryptionScheme, pbes2::Kdf},
};
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
    assert!(matches!(error, KeyError::WrongPassphrase { program: KeyProgram::Puttygen, .. }), "{error:?}");
    let costly = PUTTY.replace("Argon2-Memory: 64", "Argon2-Memory: 999999999");
    let error = loaded(&costly, None).unwrap_err();
    assert!(matches!(error, KeyError::TooCostly { program: KeyProgram::Puttygen, .. }), "{error:?}");
    let damaged = PUTTY.replace("aes256-cbc", "none");
    let error = loaded(&damaged, None).unwrap_err();
    assert!(matches!(error, KeyError::Unusable { program: KeyProgram::Puttygen, .. }), "{error:?}");
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

/// Changes to a key by heredocs, templates and variables.
#[test]
fn damaged_key_text_is_repaired() {
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
            ("newlines as two characters", each_line(&|line| format!("{line}\\n"))),
            ("newlines as spaces", each_line(&|line| format!("{line} "))),
            ("newlines lost", each_line(&str::to_owned)),
            ("byte order mark", format!("\u{feff}{text}")),
        ] {
            assert_eq!(loaded(&damaged, None), expected, "{args:?}: {damage}");
        }
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
    fn key_repair_never_panics_and_leaves_no_blank_lines(text in "(-----|BEGIN|END| |\\n|\n|\r|: |[A-Za-z0-9+/=]|\\PC){0,60}") {
        let repaired = repair(&text);
        prop_assert!(repaired.lines().all(|line| !line.is_empty()), "{}", *repaired);
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

/// Changes the content of a PEM text.
fn changed(pem: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let lines: Vec<&str> = pem.lines().collect();
    let body = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    let base64 = STANDARD.encode(change(&body));
    let wrapped: Vec<&str> = base64.as_bytes().chunks(70).map(|it| str::from_utf8(it).unwrap()).collect();
    format!("{}\n{}\n{}\n", lines[0], wrapped.join("\n"), lines[lines.len() - 1])
}

/// An encrypted key of ssh-keygen with a different number of bcrypt rounds in its header.
fn with_rounds(pem: &str, rounds: u32) -> String {
    changed(pem, |body| {
        let mut body = body.to_vec();
        let kdf = body.windows(6).position(|it| it == b"bcrypt").unwrap();
        // The name, the length of the options, the length of the salt, the salt, the rounds.
        let at = kdf + 6 + 4 + 4 + 16;
        body.splice(at..at + 4, rounds.to_be_bytes());
        body
    })
}

/// An encrypted key of openssl with different KDF parameters in its header.
fn with_kdf(pem: &str, change: impl FnOnce(&mut Kdf)) -> String {
    changed(pem, |body| {
        let mut info = EncryptedPrivateKeyInfoRef::try_from(body).unwrap();
        let EncryptionScheme::Pbes2(pbes2) = &mut info.encryption_algorithm else { panic!("no PBES2") };
        change(&mut pbes2.kdf);
        info.to_der().unwrap()
    })
}

fn openssl(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("openssl").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A key file sets the cost of a passphrase attempt, which can be years and more memory than the machine has. Careful but usual costs are
/// accepted.
#[test]
fn kdf_cost_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let bcrypt = generate(dir.path(), "bcrypt", &["-t", "ed25519", "-N", "geheim", "-a", "1"]);
    openssl(dir.path(), &["genpkey", "-algorithm", "ed25519", "-out", "plain"]);
    let encrypt = |args: &[&str]| {
        let all = [&["pkcs8", "-topk8", "-in", "plain", "-passout", "pass:geheim"], args].concat();
        openssl(dir.path(), &all)
    };
    let (pbkdf2, scrypt) = (encrypt(&["-iter", "2"]), encrypt(&["-scrypt", "-scrypt_N", "16"]));
    let iterations = |count| {
        with_kdf(&pbkdf2, |kdf| {
            let Kdf::Pbkdf2(kdf) = kdf else { panic!() };
            kdf.iteration_count = count;
        })
    };
    let costs = |n, r, p| {
        with_kdf(&scrypt, |kdf| {
            let Kdf::Scrypt(kdf) = kdf else { panic!() };
            (kdf.cost_parameter, kdf.block_size, kdf.parallelization) = (n, r, p);
        })
    };
    let putty = |mib: u64, passes: u64| {
        format!(
            "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: aes256-cbc\nArgon2-Memory: {}\nArgon2-Passes: {passes}\n",
            mib << 10
        )
    };
    // Without a change they can be opened, so the changed bytes are those that the decoder reads.
    for text in [&bcrypt, &pbkdf2, &scrypt] {
        loaded(text, Some("geheim")).unwrap();
    }
    for allowed in [
        with_rounds(&bcrypt, 1_000),
        with_rounds(&bcrypt, 2_000),
        iterations(2_048),
        iterations(1_000_000),
        iterations(10_000_000),
        costs(1 << 14, 8, 1),
        costs(1 << 17, 8, 1),
        costs(1 << 14, 8, 16),
        putty(8, 34),
        putty(256, 64),
    ] {
        let error = loaded(&allowed, None).unwrap_err();
        assert!(matches!(error, KeyError::NoPassphrase { .. }), "{allowed}: {error:?}");
    }
    for (refused, words) in [
        (with_rounds(&bcrypt, 2_001), "2001 bcrypt rounds"),
        (with_rounds(&bcrypt, u32::MAX), "4294967295 bcrypt rounds"),
        (iterations(10_000_001), "10000001 PBKDF2 iterations"),
        (iterations(u32::MAX), "4294967295 PBKDF2 iterations"),
        (costs(1 << 18, 9, 1), "288 MiB of memory"),
        (costs(1 << 63, 8, 1), "MiB of memory"),
        (costs(2, u16::MAX, u16::MAX), "p=65535, 524"),
        (costs(1 << 17, 8, 17), "N x r x p = 17825792"),
        (costs(u64::MAX, u16::MAX, u16::MAX), "MiB of memory"),
        (putty(257, 1), "Argon2 with 257 MiB"),
        (putty(256, 65), "Argon2 with 65 passes over 256 MiB"),
        (putty(u64::from(u32::MAX) >> 10, u64::MAX), "Argon2 with 4194303 MiB"),
    ] {
        for passphrase in [None, Some("geheim")] {
            let error = loaded(&refused, passphrase).unwrap_err();
            assert!(matches!(error, KeyError::TooCostly { .. }), "{words}: {error:?}");
            assert!(error.to_string().contains(words), "{words}: {error}");
        }
    }
    // The decoder would take its logarithm, and panic.
    let error = loaded(&costs(0, 8, 1), Some("geheim")).unwrap_err();
    assert!(matches!(error, KeyError::Unusable { .. }), "{error:?}");
}

/// An RSA key can have any size, and the cost of its arithmetic grows with the square of the size.
#[test]
fn oversized_key_text_is_rejected() {
    let long = "A".repeat(70_000);
    let text = format!("-----BEGIN RSA PRIVATE KEY-----\n{long}\n-----END RSA PRIVATE KEY-----\n");
    let error = loaded(&text, None).unwrap_err().to_string();
    assert!(error.contains("larger than 64 KiB") && !error.contains("AAAA"), "{error}");
}

/// The decoder reads the block that the limits were put to: not one that hides behind another, or inside it.
#[test]
fn only_first_key_block_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let plain = generate(dir.path(), "plain", &["-t", "ed25519", "-N", ""]);
    let costly =
        with_rounds(&generate(dir.path(), "costly", &["-t", "ed25519", "-N", "geheim", "-a", "1"]), u32::MAX);
    assert_eq!(loaded(&format!("{plain}{costly}"), Some("geheim")), Ok(public(dir.path(), "plain")));
    let error = loaded(&format!("{costly}{plain}"), Some("geheim")).unwrap_err();
    assert!(matches!(error, KeyError::TooCostly { .. }), "{error:?}");
    let nested = format!("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n{costly}");
    let error = loaded(&nested, Some("geheim")).unwrap_err();
    assert!(matches!(error, KeyError::Unusable { .. }), "{error:?}");
}

use std::{path::Path, process::Command};

use super::grow::feed;

/// Runs a program in a directory. `None`: the program is not installed.
fn run(dir: &Path, program: &str, arguments: &[&str]) -> Option<()> {
    let output = Command::new(program).args(arguments).current_dir(dir).output().ok()?;
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

fn read(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(name)).unwrap()
}

#[test]
fn known_hosts_parser_keeps_invariants() {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for (kind, hosts) in [
        ("ed25519", "h"),
        ("ecdsa", "h,[h]:2222,10.0.0.1"),
        ("rsa", "*.example.com,!bad.example.com"),
        ("ed25519", "@cert-authority *"),
        ("ed25519", "@revoked h"),
    ] {
        let name = format!("key{}", lines.len());
        run(dir.path(), "ssh-keygen", &["-q", "-t", kind, "-N", "", "-C", "a comment", "-f", &name]).unwrap();
        let public = String::from_utf8(read(dir.path(), &format!("{name}.pub"))).unwrap();
        lines += &format!("{hosts} {public}");
    }
    std::fs::write(dir.path().join("hashed"), &lines).unwrap();
    run(dir.path(), "ssh-keygen", &["-q", "-H", "-f", "hashed"]).unwrap();
    let text = format!("# a comment\n\n{lines}\r\n\t {lines}");
    let mut corpus = vec![text.into_bytes(), read(dir.path(), "hashed")];
    corpus.extend(lines.lines().map(|line| line.as_bytes().to_vec()));
    let dictionary = [
        "@revoked ",
        "@cert-authority ",
        "@",
        "|1|",
        "|",
        "!",
        "*",
        "?",
        ",",
        "[",
        "]:",
        "h",
        " ",
        "\t",
        "\n",
        "\r\n",
        "#",
        "ssh-ed25519 ",
        "AAAAC3NzaC1lZDI1NTE5AAAAI",
        "=",
        "\0",
        "\u{feff}",
        "é",
    ];
    feed(super::known_hosts, &corpus, &dictionary);
}

#[test]
fn private_key_parser_keeps_invariants() {
    let dir = tempfile::tempdir().unwrap();
    let mut corpus = Vec::new();
    for (number, arguments) in [
        &["-t", "ed25519", "-N", ""] as &[&str],
        &["-t", "ecdsa", "-b", "256", "-N", ""],
        &["-t", "ecdsa", "-b", "521", "-N", ""],
        &["-t", "rsa", "-b", "2048", "-N", ""],
        &["-t", "ed25519", "-N", "geheim", "-a", "1"],
        &["-t", "ed25519", "-N", "geheim", "-a", "1", "-Z", "aes256-gcm@openssh.com"],
        &["-t", "ed25519", "-N", "geheim", "-a", "1", "-Z", "chacha20-poly1305@openssh.com"],
        &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", ""],
        &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "geheim"],
        &["-t", "ecdsa", "-m", "PEM", "-N", ""],
        &["-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", ""],
        &["-t", "ecdsa", "-m", "PKCS8", "-N", ""],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("key{number}");
        run(dir.path(), "ssh-keygen", &[&["-q", "-f", &name], *arguments].concat()).unwrap();
        corpus.push(read(dir.path(), &name));
    }
    corpus.push(read(dir.path(), "key0.pub"));
    for arguments in [
        &["genpkey", "-algorithm", "ed25519", "-out", "pkcs8"] as &[&str],
        &["pkcs8", "-topk8", "-in", "pkcs8", "-iter", "2", "-passout", "pass:geheim", "-out", "pbkdf2"],
        &[
            "pkcs8",
            "-topk8",
            "-in",
            "pkcs8",
            "-scrypt",
            "-scrypt_N",
            "16",
            "-passout",
            "pass:geheim",
            "-out",
            "scrypt",
        ],
        &["ecparam", "-name", "secp384r1", "-genkey", "-noout", "-out", "sec1"],
    ] {
        if run(dir.path(), "openssl", arguments).is_some() {
            corpus.push(read(dir.path(), arguments.last().unwrap()));
        }
    }
    let dictionary = [
        "-----BEGIN ",
        "-----END ",
        "-----",
        "OPENSSH PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PRIVATE KEY",
        "PUBLIC KEY",
        "Proc-Type: 4,ENCRYPTED\n",
        "DEK-Info: AES-128-CBC,",
        "DEK-Info: ",
        ": ",
        "\n",
        "\\n",
        "\r\n",
        " ",
        "=",
        "==",
        "\u{feff}",
        "/",
        "~/",
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        "Encryption: aes256-cbc\n",
        "Private-Lines: 4294967295\n",
    ];
    feed(super::private_key, &corpus, &dictionary);
}

#[test]
fn template_parser_keeps_invariants() {
    let corpus = [
        "ssh\n-W\n{{host}}:{{port}}\n{{username}}@bastion",
        "aws\nssm\nstart-session\n--target\n{{instance_id}}\n--parameters\nportNumber={{port}}",
        "gcloud\ncompute\nssh\n{{ instance_name }}\n--\n{{wrapper_path}} {{wrapper_address}} {{username}} {{address}}",
        "nc\n{{wrapper_host}}\n{{wrapper_port}}",
        "x\n{{",
    ]
    .map(|text| text.as_bytes().to_vec());
    let dictionary = [
        "{{",
        "}}",
        "{",
        "}",
        "{{host}}",
        "{{ port }}",
        "{{instance_name}}",
        "host",
        "username",
        "username",
        " ",
        "\n",
        "-",
        "\0",
        "é",
        "{{}}",
        "{{{{",
        "}}}}",
    ];
    feed(super::template, &corpus, &dictionary);
}

//! Keys of kinds that are not supported.

use super::*;

/// Intact keys of kinds that SSH or the provider does not use. `tls_private_key` creates P-224 keys by default.
#[test]
fn key_of_unsupported_kind_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let ec = |curve: &str| format!("ec_paramgen_curve:{curve}");
    let (p224, koblitz, brainpool) = (ec("P-224"), ec("secp256k1"), ec("brainpoolP256r1"));
    openssl(dir.path(), &["dsaparam", "-out", "dsa.params", "1024"]);
    let encrypted = ["-aes256", "-pass", "pass:geheim"];
    let mut cases = Vec::new();
    for (args, name) in [
        (vec!["-algorithm", "EC", "-pkeyopt", &p224], "ECDSA P-224"),
        (vec!["-algorithm", "EC", "-pkeyopt", &koblitz], "ECDSA secp256k1"),
        (vec!["-algorithm", "EC", "-pkeyopt", &brainpool], "1.3.36.3.3.2.8.1.1.7"),
        (vec!["-algorithm", "ed448"], "Ed448"),
        (vec!["-algorithm", "x25519"], "X25519"),
        (vec!["-algorithm", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:1024"], "RSA-PSS"),
        (vec!["-paramfile", "dsa.params"], "DSA"),
    ] {
        let all = [&["genpkey"], args.as_slice(), &encrypted].concat();
        cases.push((openssl(dir.path(), &all), Some("geheim"), name));
        std::fs::write(
            dir.path().join("key"),
            openssl(dir.path(), &[&["genpkey"], args.as_slice()].concat()),
        )
        .unwrap();
        cases.push((openssl(dir.path(), &["pkcs8", "-topk8", "-nocrypt", "-in", "key"]), None, name));
        if args[1] == "EC" {
            cases.push((openssl(dir.path(), &["ec", "-in", "key"]), None, name));
        }
    }
    cases.push((generate(dir.path(), "dsa", &["-t", "dsa", "-N", ""]), None, "ssh-dss"));
    for (text, passphrase, name) in cases {
        let error = loaded(&text, passphrase).unwrap_err().to_string();
        let words = format!("keys of the kind {name} are not supported; use an Ed25519, ECDSA (P-256");
        assert!(error.contains(&words), "{name}: {error}");
    }
}

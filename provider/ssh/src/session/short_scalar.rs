//! ECDSA P-256 keys whose private number begins with a zero byte: 1 of 256 keys.
//!
//! ssh-keygen writes the number as an `mpint`, without leading zeros, and ssh-key 0.7.0-rc.11 refuses fewer than 32 bytes. Here the number
//! gets its leading zeros, and ssh-key reads the rest as usual.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use russh::keys::{PrivateKey, ssh_key::Error};
use zeroize::Zeroizing;

const MAGIC: &[u8] = b"openssh-key-v1\0";
const NAME: &[u8] = b"ecdsa-sha2-nistp256";

/// The size of the private number in bytes.
const SIZE: usize = 32;

/// Reads a key in the OpenSSH format whose private number is too short for ssh-key.
///
/// `None`: the key is not of this kind, or its passphrase is wrong. Only a P-256 key derives a key from the passphrase once more.
pub(super) fn read(text: &str, passphrase: Option<&str>) -> Option<PrivateKey> {
    let base64 = Zeroizing::new(text.lines().filter(|line| !line.starts_with("-----")).collect::<String>());
    let blob = &Zeroizing::new(STANDARD.decode(base64.as_bytes()).ok()?);
    let mut rest = blob.strip_prefix(MAGIC)?;
    let (_cipher, _kdf, _options) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
    rest = rest.strip_prefix(&1_u32.to_be_bytes())?;
    let (public, private) = (take(&mut rest)?, take(&mut rest)?);
    if take(&mut &*public)? != NAME {
        return None;
    }
    let padded = match passphrase {
        Some(passphrase) => pad(&decrypt(blob, passphrase).ok()?)?,
        None => pad(private)?,
    };
    let mut plain = Zeroizing::new(MAGIC.to_vec());
    for field in [&b"none"[..], b"none", b""] {
        put(&mut plain, field);
    }
    plain.extend(1_u32.to_be_bytes());
    put(&mut plain, public);
    put(&mut plain, &padded);
    PrivateKey::from_bytes(&plain).ok()
}

/// The private part of an encrypted key.
fn decrypt(blob: &[u8], passphrase: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let key = PrivateKey::from_bytes(blob)?;
    let (secret, iv) = key.kdf().derive_key_and_iv(key.cipher(), passphrase)?;
    let mut private = Zeroizing::new(key.key_data().encrypted().ok_or(Error::Decrypted)?.to_vec());
    // Ciphers with a tag, which ssh-keygen uses only on request (`-Z`), fail here.
    key.cipher().decrypt(&secret, &iv, &mut private, None).map_err(|_| Error::Crypto)?;
    Ok(private)
}

/// The private part with a number of full length, if it has a shorter one.
fn pad(private: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (checks, mut rest) = private.split_at_checked(8)?;
    let is_decrypted = checks[..4] == checks[4..];
    let (name, curve, point) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
    let (number, comment) = (take(&mut rest)?, take(&mut rest)?);
    if !is_decrypted || name != NAME || number.len() >= SIZE {
        return None;
    }
    let mut full = Zeroizing::new([0; SIZE]);
    full[SIZE - number.len()..].copy_from_slice(number);
    let mut padded = Zeroizing::new(checks.to_vec());
    for field in [name, curve, point, full.as_slice(), comment] {
        put(&mut padded, field);
    }
    // 1, 2, 3, ... up to the block size of `none`.
    for byte in 1..=u8::try_from(padded.len().next_multiple_of(8) - padded.len()).ok()? {
        padded.push(byte);
    }
    Some(padded)
}

/// Takes one string from the front.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (field, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(field)
}

/// Appends a string. Fields of a key are far below 4 GiB.
fn put(blob: &mut Vec<u8>, field: &[u8]) {
    blob.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
    blob.extend(field);
}

#[cfg(test)]
mod tests {
    use crate::session::{DecodeError, PrivateKey};

    /// Created by ssh-keygen for this test only, and chosen for its number of 31 bytes.
    const SHORT: &str = "\
-----BEGIN OPENSSH PRIVATE KEY-----\n\
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAaAAAABNlY2RzYS\n\
1zaGEyLW5pc3RwMjU2AAAACG5pc3RwMjU2AAAAQQRHpsVVjx8PGILnUOrvki3m2zzXiLVw\n\
XYQqqQcLcxd7P1KjxevSmI+AMzABAoRiRuGpxATWw+1ngrjEjLV/pl9IAAAAoE4HmixOB5\n\
osAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEemxVWPHw8YgudQ\n\
6u+SLebbPNeItXBdhCqpBwtzF3s/UqPF69KYj4AzMAEChGJG4anEBNbD7WeCuMSMtX+mX0\n\
gAAAAfFdwoJsj3gDqPs6sEM2uLDL6jGHqTHpEc8mjNmm6AyAAAAAdyb290QHZtAQI=\n\
-----END OPENSSH PRIVATE KEY-----\n";

    /// The same key, encrypted with the passphrase `test`.
    const ENCRYPTED: &str = "\
-----BEGIN OPENSSH PRIVATE KEY-----\n\
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABBr3Y8OzO\n\
LDysM9Pz1QhovJAAAAAQAAAAEAAABoAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlz\n\
dHAyNTYAAABBBEemxVWPHw8YgudQ6u+SLebbPNeItXBdhCqpBwtzF3s/UqPF69KYj4AzMA\n\
EChGJG4anEBNbD7WeCuMSMtX+mX0gAAACgdVCAq9rDdHWokuhxDOFXBmrLTH1xsAEBOcTw\n\
xzAbCU9UzpBqhK8yYRSVh4rQfgwenNQguTB68ZbMHj7hqCQarSo2iP7U4RrGn+0vd9aUp/\n\
Whdo9rC0M80XN3ElSg/aOEL9ThMSADJtYIOzItb5k3zG4a/+xsoziqCTBx6BFSHGW/OCu/\n\
EE3gq0cR/dyOxF9FJ/wBscxj6kcOpA+oFWApTg==\n\
-----END OPENSSH PRIVATE KEY-----\n";

    const FINGERPRINT: &str = "SHA256:DmGY5ahf+hJjCTldrzeGJUie9aOOdf0ZDRLyQVkjWeQ";

    #[test]
    fn p256_key_with_leading_zero_is_loaded() {
        let fingerprint =
            |text, passphrase| PrivateKey::decode(text, passphrase).map(|key| key.fingerprint());
        assert_eq!(fingerprint(SHORT, None).as_deref(), Ok(FINGERPRINT));
        assert_eq!(fingerprint(ENCRYPTED, Some("test")).as_deref(), Ok(FINGERPRINT));
        assert_eq!(fingerprint(ENCRYPTED, Some("wrong")), Err(DecodeError::Passphrase));
    }
}

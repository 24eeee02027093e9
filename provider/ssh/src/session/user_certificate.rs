//! What a user certificate shows about a login that a server refuses.

use russh::keys::{Certificate, HashAlg, ssh_key::certificate::CertType};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::host_certificate::is_allowed;
use crate::{
    error::OfferedCertificate,
    host_text::{MAX_TEXT, shortened},
};

/// `username`: the user of the login.
pub(super) fn report(certificate: &Certificate, username: &str) -> OfferedCertificate {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let problems = problems(certificate, username, now.cast_unsigned());
    OfferedCertificate {
        id: certificate.key_id().to_owned(),
        authority: certificate.signature_key().fingerprint(HashAlg::Sha256).to_string(),
        problems: problems.into_iter().map(|problem| shortened(problem, MAX_TEXT)).collect(),
    }
}

/// The id of a certificate with which OpenSSH's server forwards nothing.
pub(super) fn without_forwarding(certificate: &Certificate) -> Option<String> {
    let may_forward = certificate.extensions().contains_key("permit-port-forwarding");
    (!may_forward).then(|| certificate.key_id().to_owned())
}

/// Clauses about the certificate.
fn problems(certificate: &Certificate, username: &str, now: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if certificate.cert_type() != CertType::User {
        problems.push("is a host certificate".to_owned());
    }
    if certificate.valid_after() > now {
        problems.push(format!("is not valid before {}", moment(certificate.valid_after())));
    } else if certificate.valid_before() <= now {
        problems.push(format!("expired at {}", moment(certificate.valid_before())));
    }
    let principals = certificate.valid_principals();
    if principals.is_empty() {
        problems.push("has no principals".to_owned());
    } else if !principals.iter().any(|name| name == username) {
        problems.push(format!(
            "does not have the principal {username:?}, but {principals:?}: the server must accept one of these for this user \
             (`AuthorizedPrincipalsFile`)"
        ));
    }
    for (name, value) in certificate.critical_options().iter() {
        problems.push(format!(
            "has the critical option {name}={value:?}, which the server must support and accept"
        ));
    }
    let algorithm = certificate.signature().algorithm();
    if !is_allowed(&algorithm) {
        problems.push(format!("has a signature with {algorithm}, which is not secure"));
    }
    problems
}

fn moment(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| "the year 10000".to_owned())
}

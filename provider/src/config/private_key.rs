//! A private key in the configuration: attributes that `ssh` and its jump hosts have in common.

use std::path::Path;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value, secret, text},
};
use grit_ssh::{Attribute, CredentialSource, KeySource, Secret, check, expand};

use super::{
    object::object,
    ssh_checks::{check_file, check_option},
    text::set,
};
use crate::explain::values;

object! {
    /// A key as text or file, and what belongs to it. The parameters are the descriptions. Has no `Debug`, because it contains secrets.
    pub(super) struct KeyArgs(private_key, private_key_path, passphrase, certificate_path) {
        pub(super) private_key: Value<String> = secret => private_key, check_private_key;
        pub(super) private_key_path: Value<String> = text => private_key_path;
        pub(super) passphrase: Value<String> = secret => passphrase;
        pub(super) certificate_path: Value<String> = text => certificate_path;
    }
    check: KeyArgs::check_one_key;
}

impl KeyArgs {
    /// The key, if there is one. `attribute`: what has set the value, for messages.
    pub(super) fn source(
        &self,
        attribute: impl Fn(&'static str) -> Attribute,
        home: Option<&Path>,
    ) -> Option<KeySource> {
        let text = set(&self.private_key);
        let text = text.map(|text| KeySource::Text(Secret::new(text), attribute("private_key")));
        let file = || {
            let path = set(&self.private_key_path)?;
            Some(KeySource::File(expand(path.as_ref(), home), attribute("private_key_path")))
        };
        text.or_else(file)
    }

    /// `private_key` with the passphrase and the certificate.
    pub(super) fn credentials(
        &self,
        private_key: Option<KeySource>,
        home: Option<&Path>,
    ) -> CredentialSource {
        CredentialSource {
            private_key,
            passphrase: set(&self.passphrase).map(Secret::new),
            certificate_path: set(&self.certificate_path).map(|path| expand(path.as_ref(), home)),
            agent: None,
        }
    }

    fn check_one_key(&self, path: &AttributePath, problems: &mut Problems) {
        if set(&self.private_key).is_some() && set(&self.private_key_path).is_some() {
            problems
                .add(values::conflicting_keys(path.clone()).at(path.clone().attribute("private_key_path")));
        }
    }

    /// Reads the files.
    pub(super) fn check_files(&self, path: &AttributePath, home: Option<&Path>) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_file(&self.private_key_path, &at("private_key_path"), home, check::private_key_file);
        check_file(&self.certificate_path, &at("certificate_path"), home, check::certificate_file);
    }

    /// Rejects attributes of a private key in an object without one.
    pub(super) fn check_needs_key(
        &self,
        attributes: &[(&'static str, &Value<String>)],
        path: &AttributePath,
        problems: &mut Problems,
    ) {
        let may_be_set = |key: &Value<String>| key.is_unknown() || set(key).is_some();
        if may_be_set(&self.private_key) || may_be_set(&self.private_key_path) {
            return;
        }
        for (name, _) in attributes.iter().filter(|(_, value)| set(value).is_some()) {
            problems.add(values::without_private_key(path.clone().attribute(*name)));
        }
    }
}

/// An empty text is an error: `tls_private_key` has one for a key that OpenSSH does not support.
fn check_private_key(text: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(text) = text {
        check_option(check::private_key(&Secret::new(text.clone())), path, problems);
    }
}

//! The `gitlab` object of the provider block.

use grit_plugin::{
    Problem, Problems,
    schema::{AttributePath, Value, secret, text},
};
use grit_ssh::Secret;

use super::{object::object, text::set};
use crate::{
    explain::values,
    fleet::receipt::NoReceipt,
    gitlab::{Connections, Gitlab, Instance, Proxy, certificates},
};

/// The instance, unless `url` sets another.
const URL: &str = "https://gitlab.com";

object! {
    /// Has no `Debug`, because it contains a token.
    pub(super) struct GitlabArgs {
        url: Value<String> = text => format!(
            "URL of the GitLab instance. Environment: `GRIT_GITLAB_URL`. Default `{URL}`. The token is sent to this instance only. For \
             a runner that is registered at another instance, the provider sends no request, and shows a warning. The connection uses the proxy \
             of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`."
        ), check_valid(is_url, values::gitlab_url);
        token: Value<String> = secret =>
            "Personal, group or project access token of an owner of the runners or of an administrator. Required scope: `read_api`, or \
             `api` for `on_lost_jobs = \"retry\"`. Environment: `GRIT_GITLAB_TOKEN`.",
            check_valid(is_token, values::gitlab_token);
        ca_certificate: Value<String> = text =>
            "Certificates of additional trusted authorities, in PEM format. The authorities of the machine are always trusted.",
            check_valid(is_certificates, values::certificate);
    }
}

/// Why GitLab cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    NoToken,
    /// This attribute is invalid.
    Invalid(&'static str),
}

impl From<&Unusable> for NoReceipt {
    fn from(unusable: &Unusable) -> Self {
        match unusable {
            Unusable::NoToken => Self::NoToken,
            Unusable::Invalid(attribute) => Self::Invalid(attribute),
        }
    }
}

impl GitlabArgs {
    /// Sets missing values from environment variables. A token in the environment is enough.
    pub(super) fn or_environment(
        gitlab: Value<Self>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Value<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut args = match gitlab {
            Value::Value(args) => args,
            Value::Null if variable("GRIT_GITLAB_TOKEN").is_some() => Self::default(),
            other => return other,
        };
        for (value, name) in [(&mut args.url, "GRIT_GITLAB_URL"), (&mut args.token, "GRIT_GITLAB_TOKEN")] {
            if set(value).is_none()
                && let Some(text) = variable(name)
            {
                *value = Value::Value(text);
            }
        }
        Value::Value(args)
    }

    /// Opens no connection. A value that became known only in the apply was not checked.
    /// `variable` reads environment variables.
    pub(super) fn client(
        &self,
        connections: &Connections,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Gitlab, Unusable> {
        let (url, certificates) = (set(&self.url), set(&self.ca_certificate));
        let instance = Instance::parse(url.as_deref().unwrap_or(URL)).ok_or(Unusable::Invalid("url"))?;
        if set(&self.token).is_some_and(|token| !is_token(&token)) {
            return Err(Unusable::Invalid("token"));
        }
        if certificates.as_deref().is_some_and(|pem| !is_certificates(pem)) {
            return Err(Unusable::Invalid("ca_certificate"));
        }
        let token = Secret::new(set(&self.token).ok_or(Unusable::NoToken)?);
        let proxy = Proxy::of(&instance, variable);
        Gitlab::new(instance, &token, certificates, proxy, connections).ok_or(Unusable::Invalid("token"))
    }
}

fn is_url(text: &str) -> bool {
    Instance::parse(text).is_some()
}

fn is_token(text: &str) -> bool {
    http::HeaderValue::from_str(text).is_ok()
}

fn is_certificates(pem: &str) -> bool {
    certificates(pem).is_ok_and(|found| !found.is_empty())
}

/// The error does not contain the text.
fn check_valid(
    is_valid: fn(&str) -> bool,
    error: fn(AttributePath) -> Problem,
) -> impl Fn(&Value<String>, &AttributePath, &mut Problems) {
    move |value, path, problems| {
        if set(value).is_some_and(|text| !is_valid(&text)) {
            problems.add(error(path.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::object::Object as _;

    fn text(text: &str) -> Value<String> {
        Value::Value(text.to_owned())
    }

    #[test]
    fn token_of_the_environment_is_enough() {
        let of = |gitlab: Value<GitlabArgs>, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            match GitlabArgs::or_environment(gitlab, variable) {
                Value::Value(args) => Some(
                    args.client(&Connections::Https, variable).map(|gitlab| gitlab.instance().to_string()),
                ),
                _ => None,
            }
        };
        let default = Some(Ok("https://gitlab.com".to_owned()));
        assert_eq!(of(Value::Null, &[]), None);
        assert_eq!(of(Value::Null, &[("GRIT_GITLAB_URL", "https://gitlab.example")]), None);
        assert_eq!(of(Value::Null, &[("GRIT_GITLAB_TOKEN", "t")]), default);
        let both = [("GRIT_GITLAB_TOKEN", "t"), ("GRIT_GITLAB_URL", "https://gitlab.example/sub/")];
        assert_eq!(of(Value::Null, &both), Some(Ok("https://gitlab.example/sub".to_owned())));
        let block = |url: &str| Value::Value(GitlabArgs { url: text(url), ..GitlabArgs::default() });
        assert_eq!(of(block("https://a.example"), &[]), Some(Err(Unusable::NoToken)));
        assert_eq!(of(block("https://a.example"), &both), Some(Ok("https://a.example".to_owned())));
        assert_eq!(of(block("a.example"), &both), Some(Err(Unusable::Invalid("url"))));
    }

    #[test]
    fn invalid_values_are_named_without_their_text() {
        let check = |args: GitlabArgs| {
            let mut problems = Problems::default();
            args.check_at(&AttributePath::new("gitlab"), &mut problems);
            problems.iter().map(|error| error.detail()).collect::<Vec<_>>()
        };
        for url in [
            "gitlab.example",
            "ftp://gitlab.example",
            "https://u:s3cret@gitlab.example",
            "https://g.example/?x=s3cret",
        ] {
            let found = check(GitlabArgs { url: text(url), ..GitlabArgs::default() });
            assert!(
                found.len() == 1 && found[0].contains("`gitlab.url`") && !found[0].contains("s3cret"),
                "{found:?}"
            );
        }
        let found = check(GitlabArgs { token: text("s3cret\n"), ..GitlabArgs::default() });
        assert!(
            found.len() == 1 && found[0].contains("`gitlab.token`") && !found[0].contains("s3cret"),
            "{found:?}"
        );
        let found = check(GitlabArgs { ca_certificate: text("ca.pem"), ..GitlabArgs::default() });
        assert!(found.len() == 1 && found[0].contains("`gitlab.ca_certificate`"), "{found:?}");
        let unknown =
            GitlabArgs { url: Value::Unknown, token: Value::Unknown, ca_certificate: Value::Unknown };
        assert_eq!(check(unknown), Vec::<String>::new());
    }
}

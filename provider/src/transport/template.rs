//! Arguments of commands, with names in double braces: `{{host}}`.
//!
//! Each argument is expanded by itself and handed to the program as it is; no shell reads it. A value that a program could take for an
//! option, or that holds control characters, is refused.

use std::fmt::Write as _;

use crate::transport::{
    address::WrapperAddress,
    error::{Attribute, Cause, InvalidOption},
    settings::ConnectionMethod,
    target::Target,
};

/// An argument list with names in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    arguments: Vec<Vec<Part>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Name(Placeholder),
}

/// Names and what they stand for.
macro_rules! names {
    ($($variant:ident $name:literal),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Placeholder { $($variant),+ }

        impl Placeholder {
            const ALL: &[(&'static str, Placeholder)] = &[$(($name, Placeholder::$variant)),+];
        }
    };
}

names! {
    Manager "manager",
    InstanceName "instance_name",
    InstanceId "instance_id",
    Address "address",
    Host "host",
    Port "port",
    Username "username",
    WrapperAddress "wrapper_address",
    WrapperPath "wrapper_path",
    WrapperHost "wrapper_host",
    WrapperPort "wrapper_port",
}

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error(
        "the program is missing; write a list such as [\"ssh\", \"-W\", \"{{{{host}}}}:{{{{port}}}}\", \"bastion\"]"
    )]
    Empty,
    #[error("unknown placeholder {name:?}; valid names: {}", known())]
    UnknownName { argument: usize, name: String },
    #[error("`{{{{` has no closing `}}}}`")]
    Unclosed { argument: usize },
    #[error("runner manager {manager:?} has no value for {{{{{name}}}}}")]
    NoValue { manager: String, name: &'static str },
    #[error("the value {value:?} of {{{{{name}}}}} {problem}")]
    Refused { name: &'static str, value: String, problem: &'static str },
}

impl Template {
    /// Reads an argument list: the program first.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, TemplateError> {
        if arguments.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(TemplateError::Empty);
        }
        let arguments = arguments.iter().enumerate().map(|(index, text)| parts(text, index));
        Ok(Self { arguments: arguments.collect::<Result<_, _>>()? })
    }

    /// The arguments for a manager.
    pub(crate) fn expand(
        &self,
        target: &Target,
        username: Option<&str>,
    ) -> Result<Vec<String>, TemplateError> {
        let expand_one = |parts: &Vec<Part>| {
            parts.iter().try_fold(String::new(), |mut text, part| {
                match part {
                    Part::Text(plain) => text.push_str(plain),
                    Part::Name(name) => {
                        let _ = write!(text, "{}", name.checked_value(target, username)?);
                    }
                }
                Ok(text)
            })
        };
        self.arguments.iter().map(expand_one).collect()
    }
}

impl TemplateError {
    /// The argument that is wrong, where it is one.
    pub(crate) fn argument(&self) -> Option<usize> {
        match self {
            Self::UnknownName { argument, .. } | Self::Unclosed { argument } => Some(*argument),
            _ => None,
        }
    }

    /// The error of a connection that needs the template of `method`.
    pub(crate) fn cause(&self, method: ConnectionMethod) -> Cause {
        let attribute = match self.argument() {
            Some(index) => Attribute::SshElement(method.name(), index),
            None => Attribute::Ssh(method.name()),
        };
        Cause::Option(InvalidOption { attribute, problem: self.to_string() })
    }
}

impl Placeholder {
    fn text(self) -> &'static str {
        Self::ALL.iter().find(|(_, name)| *name == self).map_or("", |(text, _)| text)
    }

    fn value(self, target: &Target, username: Option<&str>) -> Option<String> {
        let wrapper = &target.wrapper_address;
        match self {
            Self::Manager => Some(target.manager.clone()),
            Self::InstanceName => Some(target.instance_name.clone()),
            Self::InstanceId => target.instance_id.clone(),
            Self::Address => Some(target.address.to_string()),
            Self::Host => Some(target.address.host().to_owned()),
            Self::Port => Some(target.address.port().to_string()),
            Self::Username => username.map(str::to_owned),
            Self::WrapperAddress => Some(wrapper.to_string()),
            Self::WrapperPath => match wrapper {
                WrapperAddress::Unix(path) => Some(path.clone()),
                WrapperAddress::Tcp(_) => None,
            },
            Self::WrapperHost | Self::WrapperPort => match wrapper {
                WrapperAddress::Unix(_) => None,
                WrapperAddress::Tcp(address) if self == Self::WrapperHost => Some(address.host().to_owned()),
                WrapperAddress::Tcp(address) => Some(address.port().to_string()),
            },
        }
        .filter(|value| !value.is_empty())
    }

    fn checked_value(self, target: &Target, username: Option<&str>) -> Result<String, TemplateError> {
        let name = self.text();
        let value = self
            .value(target, username)
            .ok_or_else(|| TemplateError::NoValue { manager: target.manager.clone(), name })?;
        let problem = if value.starts_with('-') {
            "begins with `-` and could be parsed as an option"
        } else if value.contains(char::is_control) {
            "contains control characters"
        } else {
            return Ok(value);
        };
        Err(TemplateError::Refused { name, value, problem })
    }
}

fn parts(text: &str, argument: usize) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").ok_or(TemplateError::Unclosed { argument })?;
        let found = Placeholder::ALL.iter().find(|(text, _)| *text == name.trim());
        let (_, name) =
            found.ok_or_else(|| TemplateError::UnknownName { argument, name: name.trim().to_owned() })?;
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        parts.push(Part::Name(*name));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn known() -> String {
    Placeholder::ALL.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::target::Login;

    fn target() -> Target {
        Target {
            manager: "m1".to_owned(),
            instance_name: "runner-1".to_owned(),
            instance_id: Some("i-07".to_owned()),
            address: "[2001:db8::7]:2222".parse().unwrap(),
            wrapper_address: "unix:///run/w.sock".parse().unwrap(),
            login: Login::default(),
            host_key: None,
            hops: Vec::new(),
        }
    }

    fn expand(arguments: &[&str]) -> Result<Vec<String>, TemplateError> {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        Template::parse(&arguments)?.expand(&target(), Some("deploy"))
    }

    #[test]
    fn placeholders_are_expanded_per_argument() {
        let expanded = expand(&[
            "x",
            "{{host}}:{{ port }}",
            "{{address}}",
            "a{{username}}b",
            "{{wrapper_path}}",
            "a b; $(c) '",
        ]);
        let expected =
            ["x", "2001:db8::7:2222", "[2001:db8::7]:2222", "adeployb", "/run/w.sock", "a b; $(c) '"]
                .map(str::to_owned);
        assert_eq!(expanded, Ok(expected.to_vec()));
        let expanded =
            expand(&["{{instance_id}}", "{{instance_name}}", "{{manager}}", "{{wrapper_address}}"]);
        assert_eq!(expanded.unwrap(), ["i-07", "runner-1", "m1", "unix:///run/w.sock"]);
    }

    #[test]
    fn invalid_templates_are_rejected() {
        use TemplateError::{Empty, NoValue, Refused, Unclosed, UnknownName};
        assert_eq!(expand(&[]), Err(Empty));
        assert_eq!(expand(&[" "]), Err(Empty));
        let error = expand(&["x", "{{hots}}"]).unwrap_err();
        assert!(matches!(&error, UnknownName { argument: 1, name } if name == "hots"), "{error}");
        assert!(error.to_string().contains("valid names: manager, instance_name"), "{error}");
        assert!(matches!(expand(&["x", "{{host"]), Err(Unclosed { argument: 1 })));
        assert!(matches!(expand(&["x", "{{wrapper_port}}"]), Err(NoValue { name: "wrapper_port", .. })));
        let mut target = target();
        for name in ["-oProxyCommand=x", "a\nb", "a\0b"] {
            target.instance_name = name.to_owned();
            let template = Template::parse(&["x".to_owned(), "{{instance_name}}".to_owned()]).unwrap();
            assert!(matches!(template.expand(&target, None), Err(Refused { .. })), "{name:?}");
        }
    }

    #[test]
    fn expanded_values_are_not_expanded_again() {
        let mut target = target();
        target.instance_name = "{{host}}".to_owned();
        let template = Template::parse(&["x".to_owned(), "{{instance_name}}".to_owned()]).unwrap();
        assert_eq!(template.expand(&target, None).unwrap(), ["x", "{{host}}"]);
    }

    proptest! {
        #[test]
        fn arbitrary_template_is_expanded_or_rejected(text in "[ -~]{0,20}|[{}a-z ]{0,20}|\\PC{0,10}") {
            if let Ok(template) = Template::parse(&["x".to_owned(), text.clone()]) {
                let expanded = template.expand(&target(), Some("u"));
                if !text.contains("{{") {
                    prop_assert_eq!(expanded, Ok(vec!["x".to_owned(), text]));
                }
            }
        }
    }
}

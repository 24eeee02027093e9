//! Arguments of commands with placeholders: `{{host}}`.
//!
//! Each argument is expanded separately and passed to the program without a shell. A value that a program could parse as an option, or that
//! contains control characters, is rejected. `ssh` passes its last arguments to a shell of the host: an address of a wrapper with other characters
//! than an address has is rejected, too.

use crate::{
    address::{HostPort, WrapperAddress},
    attribute::{Attribute, InvalidOption},
    error::{Cause, TransportError},
    route::{ConnectionMethod, Phase},
    target::Target,
};

/// An argument list with placeholders.
#[derive(Debug)]
pub(crate) struct Template {
    arguments: Vec<Vec<Part>>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Placeholder(&'static Placeholder),
}

/// A name, and its value for a runner manager.
type Placeholder = (&'static str, fn(&Target) -> Option<String>);

static PLACEHOLDERS: [Placeholder; 10] = [
    ("instance_name", |target| Some(target.instance_name.clone())),
    ("instance_id", |target| target.instance_id.clone()),
    ("address", |target| Some(target.address.to_string())),
    ("host", |target| Some(target.address.host().to_owned())),
    ("port", |target| Some(target.address.port().to_string())),
    ("username", |target| target.login.username.clone()),
    ("wrapper_address", |target| Some(target.wrapper_address.to_string())),
    ("wrapper_path", |target| match &target.wrapper_address {
        WrapperAddress::Unix(path) => Some(path.clone()),
        WrapperAddress::Tcp(_) => None,
    }),
    ("wrapper_host", |target| wrapper_tcp(target).map(|address| address.host().to_owned())),
    ("wrapper_port", |target| wrapper_tcp(target).map(|address| address.port().to_string())),
];

fn wrapper_tcp(target: &Target) -> Option<&HostPort> {
    match &target.wrapper_address {
        WrapperAddress::Unix(_) => None,
        WrapperAddress::Tcp(address) => Some(address),
    }
}

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error(
        "the program is missing; write a list such as [\"ssh\", \"-W\", \"[{{{{host}}}}]:{{{{port}}}}\", \"bastion\"]"
    )]
    Empty,
    #[error("unknown placeholder {name:?}; valid names: {}", PLACEHOLDERS.map(|(name, _)| name).join(", "))]
    UnknownName { argument: usize, name: String },
    #[error("`{{{{` has no closing `}}}}`")]
    Unclosed { argument: usize },
    #[error("runner manager {manager:?} has no value for {{{{{name}}}}}")]
    NoValue { manager: String, name: &'static str },
    #[error("the value {value:?} of {{{{{name}}}}} {problem}")]
    Refused { name: &'static str, value: String, problem: &'static str },
}

/// Tokens of `ProxyCommand` in ssh_config, and the placeholders with their values.
const OPENSSH_TOKENS: [(&str, &str); 4] =
    [("%h", "{{host}}"), ("%n", "{{host}}"), ("%p", "{{port}}"), ("%r", "{{username}}")];

/// The arguments with tokens of ssh_config, and what to write. Not the options of a nested `ssh`, which replaces the tokens itself.
fn openssh_tokens(arguments: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut previous = "";
    for (index, argument) in arguments.iter().enumerate() {
        let is_option = previous == "-o" || argument.starts_with("-o");
        previous = argument;
        let own = argument.split("ProxyCommand").next().filter(|_| !is_option).unwrap_or_default();
        let has = |token: &str| {
            let ends = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric());
            own.split(token).skip(1).any(ends)
        };
        let tokens = OPENSSH_TOKENS.iter().filter(|(token, _)| has(token));
        let (tokens, placeholders): (Vec<_>, Vec<_>) = tokens.copied().unzip();
        if !tokens.is_empty() {
            let (tokens, placeholders) = (tokens.join(", "), placeholders.join(", "));
            found.push((
                index,
                format!("tokens of ssh_config are not replaced: write {placeholders} instead of {tokens}"),
            ));
        }
    }
    found
}

/// The command of `method` for a runner manager: the program first.
pub(crate) fn expand(
    arguments: &[String],
    target: &Target,
    method: ConnectionMethod,
) -> Result<Vec<String>, TransportError> {
    Template::parse(arguments).and_then(|template| template.expand(target)).map_err(|error| {
        let attribute = match error.argument() {
            Some(index) => Attribute::SshElement(method.name(), index),
            None => Attribute::Ssh(method.name()),
        };
        let placeholder = error.placeholder();
        let option = InvalidOption { placeholder, ..InvalidOption::new(attribute, error.to_string()) };
        TransportError::at(Phase::Setup, target.route(method), Cause::Option(option))
    })
}

impl Template {
    /// Parses an argument list: the program first.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, TemplateError> {
        if arguments.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(TemplateError::Empty);
        }
        let arguments = arguments.iter().enumerate().map(|(index, text)| parts(text, index));
        Ok(Self { arguments: arguments.collect::<Result<_, _>>()? })
    }

    /// Whether an argument contains this placeholder.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let mut parts = self.arguments.iter().flatten();
        parts.any(|part| matches!(part, Part::Placeholder((placeholder, _)) if *placeholder == name))
    }

    /// The arguments for a runner manager.
    pub(crate) fn expand(&self, target: &Target) -> Result<Vec<String>, TemplateError> {
        let expand_part = |part: &Part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Placeholder((name, value)) => checked(name, value(target), target),
        };
        self.arguments.iter().map(|parts| parts.iter().map(expand_part).collect()).collect()
    }
}

impl TemplateError {
    /// The index of the invalid argument, if the error is about one.
    pub(crate) fn argument(&self) -> Option<usize> {
        match self {
            Self::UnknownName { argument, .. } | Self::Unclosed { argument } => Some(*argument),
            _ => None,
        }
    }

    /// The placeholder whose value is missing or refused.
    fn placeholder(&self) -> Option<&'static str> {
        match self {
            Self::NoValue { name, .. } | Self::Refused { name, .. } => Some(name),
            _ => None,
        }
    }
}

fn checked(name: &'static str, value: Option<String>, target: &Target) -> Result<String, TemplateError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Err(TemplateError::NoValue { manager: target.manager.clone(), name });
    };
    match problem(name, &value) {
        Some(problem) => Err(TemplateError::Refused { name, value, problem }),
        None => Ok(value),
    }
}

fn problem(name: &str, value: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_.:@+-[]".contains(c);
    if value.starts_with('-') {
        Some("begins with `-` and could be parsed as an option")
    } else if value.contains(char::is_control) {
        Some("contains control characters")
    } else if name.starts_with("wrapper_") && !value.chars().all(is_plain) {
        Some(
            "contains a character that a shell on the host could interpret; letters, digits and `/ _ . : @ + - [ ]` are valid",
        )
    } else {
        None
    }
}

/// Arguments that are valid, and that a command seldom means, each with the reason.
pub fn doubtful_arguments(arguments: &[String]) -> Vec<(usize, String)> {
    let mut found = openssh_tokens(arguments);
    let program = arguments.first().map_or("", String::as_str);
    let problem = if program.starts_with("~/") {
        "`~` is not replaced: write the absolute path of the program"
    } else if program == "exec" {
        "`exec` is a command of a shell, and the command runs without one: remove it"
    } else if program.contains(char::is_whitespace) && !std::path::Path::new(program).is_file() {
        "the program contains white space: write one element for each argument, as in [\"ssh\", \"-W\", \"[{{host}}]:{{port}}\", \"bastion\"]"
    } else {
        return found;
    };
    found.insert(0, (0, problem.to_owned()));
    found
}

fn parts(text: &str, argument: usize) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").ok_or(TemplateError::Unclosed { argument })?;
        let name = name.trim();
        let placeholder = PLACEHOLDERS.iter().find(|(known, _)| *known == name);
        let unknown = || TemplateError::UnknownName { argument, name: name.to_owned() };
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Placeholder(placeholder.ok_or_else(unknown)?));
        rest = behind;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::target::Login;

    fn target() -> Target {
        Target {
            manager: "m1".to_owned(),
            instance_name: "runner-1".to_owned(),
            instance_id: Some("i-07".to_owned()),
            address: "[2001:db8::7]:2222".parse().unwrap(),
            wrapper_address: "unix:///run/w.sock".parse().unwrap(),
            login: Login { username: Some("deploy".to_owned()), credentials: None },
            host_key: None,
            hops: Vec::new(),
        }
    }

    fn expand(arguments: &[&str]) -> Result<Vec<String>, TemplateError> {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        Template::parse(&arguments)?.expand(&target())
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
        let expanded = expand(&["{{instance_id}}", "{{instance_name}}", "{{wrapper_address}}"]);
        assert_eq!(expanded.unwrap(), ["i-07", "runner-1", "unix:///run/w.sock"]);
    }

    #[test]
    fn invalid_templates_are_rejected() {
        use TemplateError::{Empty, NoValue, Refused, Unclosed, UnknownName};
        assert_eq!(expand(&[]), Err(Empty));
        assert_eq!(expand(&[" "]), Err(Empty));
        let error = expand(&["x", "{{hots}}"]).unwrap_err();
        assert!(matches!(&error, UnknownName { argument: 1, name } if name == "hots"), "{error}");
        assert!(error.to_string().contains("valid names: instance_name, instance_id"), "{error}");
        assert!(matches!(expand(&["x", "{{host"]), Err(Unclosed { argument: 1 })));
        assert!(matches!(expand(&["x", "{{wrapper_port}}"]), Err(NoValue { name: "wrapper_port", .. })));
        let mut target = target();
        for name in ["-oProxyCommand=x", "a\nb", "a\0b"] {
            target.instance_name = name.to_owned();
            let template = Template::parse(&["x".to_owned(), "{{instance_name}}".to_owned()]).unwrap();
            assert!(matches!(template.expand(&target), Err(Refused { .. })), "{name:?}");
        }
    }

    #[test]
    fn tokens_of_ssh_config_are_found() {
        let (host, port) =
            ("tokens of ssh_config are not replaced: write {{host}} instead of %h", "{{port}}");
        for (arguments, found) in [
            (&["ssh", "-W", "%h:%p", "bastion"][..], vec![(2, port)]),
            (&["ssh", "-W", "[%h]:%p", "bastion"], vec![(2, port)]),
            (&["nc", "-X", "5", "%h", "%p"], vec![(3, host), (4, port)]),
            (
                &["sh", "-c", "aws ssm start-session --target %h --parameters 'portNumber=%p'"],
                vec![(2, port)],
            ),
            (&["sh", "-c", "ssh -o BatchMode=yes -W %h:%p bastion"], vec![(2, port)]),
            (&["tsh", "proxy", "ssh", "%r@%n:22"], vec![(3, "{{host}}, {{username}}")]),
            (&["ssh", "-oProxyCommand=nc %h %p", "-W", "{{host}}:{{port}}", "bastion"], vec![]),
            (&["ssh", "-o", "ProxyCommand=nc %h %p", "-W", "%h:22", "bastion"], vec![(4, host)]),
            (&["ssh", "-o", "ControlPath=~/.ssh/%r@%h:%p", "{{host}}"], vec![]),
            (&["sh", "-c", "ssh -o 'ProxyCommand=nc %h %p' -W {{host}}:{{port}} bastion"], vec![]),
            (&["curl", "--write-out", "%{http_code} %hello 100%", "{{host}}"], vec![]),
        ] {
            let all: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            let problems = openssh_tokens(&all);
            let matches = |((index, text), (at, words)): (&(usize, String), &(usize, &str))| {
                index == at && text.contains(words)
            };
            assert!(
                problems.len() == found.len() && problems.iter().zip(&found).all(matches),
                "{all:?}: {problems:?}"
            );
        }
    }

    #[test]
    fn program_that_only_a_shell_would_find_is_doubtful() {
        for (arguments, words) in [
            (&["ssh -W {{host}}:{{port}} jump@bastion"][..], "one element for each argument"),
            (&["exec nc {{host}} {{port}}"], "one element for each argument"),
            (&["exec", "nc", "{{host}}", "{{port}}"], "command of a shell"),
            (&["~/bin/tunnel", "{{host}}"], "`~` is not replaced"),
        ] {
            let all: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            let found = doubtful_arguments(&all);
            assert!(matches!(&found[..], [(0, problem)] if problem.contains(words)), "{all:?}: {found:?}");
        }
        for arguments in
            [&["ssh", "-W", "[{{host}}]:{{port}}", "bastion"][..], &["sh", "-c", "exec nc {{host}} 22"]]
        {
            let all: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(doubtful_arguments(&all), [], "{all:?}");
        }
    }

    /// `ssh` joins its last arguments, and the shell of the user on the host interprets them.
    #[test]
    fn wrapper_address_with_characters_of_a_shell_is_refused() {
        let expand = |wrapper: &str, name: &str| {
            let mut target = target();
            target.wrapper_address = wrapper.parse().unwrap();
            Template::parse(&["x".to_owned(), format!("{{{{{name}}}}}")]).unwrap().expand(&target)
        };
        for path in [
            "/run/$(id)",
            "/run/a b",
            "/run/a;id",
            "/run/`id`",
            "/run/a|b",
            "/run/a&b",
            "/run/'a'",
            "/run/*",
            "/run/ü",
        ] {
            for name in ["wrapper_address", "wrapper_path"] {
                let expanded = expand(&format!("unix://{path}"), name);
                assert!(
                    matches!(expanded, Err(TemplateError::Refused { .. })),
                    "{name} {path}: {expanded:?}"
                );
            }
        }
        for (wrapper, name, value) in [
            ("unix:///run/grit-wrapper/w_1.sock", "wrapper_path", "/run/grit-wrapper/w_1.sock"),
            ("tcp://[::1]:7777", "wrapper_address", "tcp://[::1]:7777"),
            ("tcp://127.0.0.1:7777", "wrapper_host", "127.0.0.1"),
        ] {
            assert_eq!(expand(wrapper, name).unwrap(), ["x", value]);
        }
    }

    /// A drain resource has no key: the same template would select another host for the drain than for the health check.
    #[test]
    fn key_of_manager_is_not_a_placeholder() {
        let error = expand(&["x", "{{manager}}"]).unwrap_err();
        assert!(matches!(&error, TemplateError::UnknownName { argument: 1, name } if name == "manager"));
    }

    #[test]
    fn expanded_values_are_not_expanded_again() {
        let mut target = target();
        target.instance_name = "{{host}}".to_owned();
        let template = Template::parse(&["x".to_owned(), "{{instance_name}}".to_owned()]).unwrap();
        assert_eq!(template.expand(&target).unwrap(), ["x", "{{host}}"]);
    }

    proptest! {
        #[test]
        fn arbitrary_template_is_expanded_or_rejected(text in "[ -~]{0,20}|[{}a-z ]{0,20}|\\PC{0,10}") {
            if let Ok(template) = Template::parse(&["x".to_owned(), text.clone()]) {
                let expanded = template.expand(&target());
                if !text.contains("{{") {
                    prop_assert_eq!(expanded, Ok(vec!["x".to_owned(), text]));
                }
            }
        }
    }
}

//! `parse_address`: host and port of an `address`.

use grit_ssh::HostPort;
use serde::Serialize;

use crate::{
    explain::functions,
    schema::{AttributeType, Function, FunctionError, FunctionSchema, Parameter, Value},
};

#[derive(Debug)]
pub struct ParseAddress;

/// Its result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Parts {
    host: String,
    port: u16,
}

impl Function for ParseAddress {
    type Arguments = (String,);
    type Output = Parts;

    fn schema(&self) -> FunctionSchema {
        let parts = [("host", AttributeType::String), ("port", AttributeType::Number)];
        FunctionSchema {
            summary: "Splits an address into host and port",
            description: "Returns an object with `host` (string) and `port` (number) of the `address` of a runner manager. The default port is 22. An IPv6 address is \
                          returned without brackets.",
            parameters: vec![Parameter {
                name: "address",
                kind: AttributeType::String,
                allow_unknown: false,
                description: "`host`, `host:port`, `[IPv6]:port` or an IPv6 address.",
            }],
            variadic: None,
            returns: AttributeType::Object(parts.map(|(name, kind)| (name.to_owned(), kind)).into()),
        }
    }

    fn call(&self, (address,): (String,)) -> Result<Value<Parts>, FunctionError> {
        let address: HostPort = address.parse().map_err(|problem| functions::invalid_address(&problem))?;
        Ok(Value::Value(Parts { host: address.host().to_owned(), port: address.port() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_returned() {
        for (address, host, port) in [
            ("mgr-1", "mgr-1", 22),
            ("10.0.0.7:2222", "10.0.0.7", 2222),
            ("[::1]:2200", "::1", 2200),
            ("::1", "::1", 22),
        ] {
            let parts = ParseAddress.call((address.to_owned(),));
            assert_eq!(parts, Ok(Value::Value(Parts { host: host.to_owned(), port })));
        }
    }

    #[test]
    fn invalid_address_is_an_error_of_the_argument() {
        let error = ParseAddress.call(("h:99999".to_owned(),)).unwrap_err();
        assert_eq!(error.argument, Some(0));
        assert_eq!(
            error.text,
            "\"99999\" in \"h:99999\" is not a valid port; a port is a number from 1 to 65535.\n\nCode: invalid_config"
        );
    }
}

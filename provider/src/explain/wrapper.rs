//! Texts for calls that reach the wrapper's address.

use std::time::Duration;

use grit_plugin::Problem;
use grit_ssh::{ConnectionMethod, Route, TransportError, WrapperAddress};

use super::{
    code::Code,
    command,
    phrases::{login_succeeded, received},
};
use crate::duration::human;

const SET_ADDRESS: &str = "Set `wrapper_address` to the address that the wrapper listens on.";

pub(super) fn not_a_wrapper(error: &TransportError) -> Problem {
    let route = &*error.route;
    if route.method == ConnectionMethod::SshCommand {
        return command::printed_text(error);
    }
    Problem::new(
        Code::ConnectFailed,
        "Not a wrapper",
        format!(
            "{}, but {} is not a gRPC server. {}",
            login_succeeded(route),
            route.wrapper,
            received(error)
        ),
        SET_ADDRESS,
    )
}

pub(super) fn closed(route: &Route) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "Wrapper closed the connection",
        format!("{}, but the wrapper at {} closed the connection.", login_succeeded(route), route.wrapper),
        match route.wrapper {
            WrapperAddress::Unix(_) => {
                "The wrapper exited or restarted, or all its connections are in use. Check the log of the wrapper on the host."
            }
            WrapperAddress::Tcp(_) => {
                "The wrapper exited or restarted, or `wrapper_address` is an address of its HTTP server (`--http-listen`). Check the log of the \
                 wrapper on the host, and use an address of `--grpc-listen`."
            }
        },
    )
}

/// `what`: the clause about the wrapper.
pub(super) fn no_response(what: &str, limit: Duration, route: &Route) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "Wrapper does not respond",
        format!(
            "{}, but the wrapper at {} {what} within {}.",
            login_succeeded(route),
            route.wrapper,
            human(limit)
        ),
        format!(
            "The wrapper may hang, or another program listens on {}. Check the log of the wrapper on the host.",
            route.wrapper
        ),
    )
}

pub(super) fn status(method: &str, code: tonic::Code, message: &str, route: &Route) -> Problem {
    let wrapper = &route.wrapper;
    let (kind, summary, happened, next) = match code {
        tonic::Code::Unimplemented => (
            Code::WrapperError,
            "Not a wrapper",
            format!("{wrapper} is a gRPC server, but it does not support {method}."),
            SET_ADDRESS,
        ),
        // An error of this side: the limit of the client.
        tonic::Code::OutOfRange => (
            Code::WrapperError,
            "Response of wrapper is too large",
            format!("the response of {wrapper} to {method} was not read: {message}."),
            "Check that the program at this address is a wrapper, and that the host is not under the control of an attacker.",
        ),
        // The message of the wrapper contains the cause and the next step.
        tonic::Code::FailedPrecondition => (
            Code::Refused,
            "Wrapper refused the call",
            format!("the wrapper at {wrapper} refused {method}: {message}."),
            "",
        ),
        tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => (
            Code::Refused,
            "Wrapper refused the call",
            format!("the wrapper at {wrapper} refused {method} ({code:?}): {message}."),
            "Check the access lists in the wrapper's settings and the log of the wrapper on the host.",
        ),
        _ => (
            Code::WrapperError,
            "Wrapper reported an error",
            format!("the wrapper at {wrapper} returned {code:?} for {method}: {message}."),
            "Check the log of the wrapper on the host.",
        ),
    };
    Problem::new(kind, summary, happened, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_tcp_connection_may_be_one_to_the_http_server() {
        let steps = |address: &str| {
            let wrapper = address.parse().unwrap();
            closed(&Route { wrapper, ..crate::client::example_route() }).next_step
        };
        assert!(steps("tcp://127.0.0.1:9402").contains("--http-listen"));
        assert!(!steps("unix:///run/w.sock").contains("--http-listen"));
    }
}

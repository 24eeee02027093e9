//! What a drain makes of a host at which nothing responds.

use tokio_util::sync::CancellationToken;

use super::{
    drain::{DrainPolicy, Drained, NotDrained, OnUnreachable, Outcome},
    failure::{Failure, Reason, Requested},
};
use crate::client::{Contact, Contacts, Offer, Waiting};

/// The outcome of a drain, of which `waiting` ends here. `identifier`: of the instance in `GRIT_ASSUME_TERMINATED`; empty if it has none.
///
/// A host without a response counts as terminated by `on_unreachable` only if this process has reached another host: otherwise the network of this
/// machine may have failed. The user's statement about the instance, for one run, needs no proof.
pub(super) async fn proved(
    outcome: Outcome,
    contact: &Contact,
    waiting: Waiting,
    policy: &DrainPolicy,
    identifier: &str,
    stop: &CancellationToken,
) -> Outcome {
    let unproved = match &outcome {
        Ok(Drained::AssumedTerminated { attempts, since, waited, error })
            if policy.on_unreachable == OnUnreachable::AssumeTerminated =>
        {
            let reason =
                Reason::Problem(NotDrained::NetworkUnproved { attempts: *attempts, error: error.clone() });
            Some((
                *since,
                Failure { waited: *waited, requested: Requested::No, last: None, lost: None, reason },
            ))
        }
        _ => None,
    };
    let failure = unproved.as_ref().map(|(_, failure)| failure).or(outcome.as_ref().err());
    if !identifier.is_empty() && failure.is_some_and(|failure| can_be_confirmed(failure, policy)) {
        contact.is_missing(identifier);
    }
    // Only now: the command of another error has this identifier, too.
    drop(waiting);
    let Some((since, failure)) = unproved else { return outcome };
    let is_proved = tokio::select! {
        biased;
        () = stop.cancelled() => false,
        is_proved = contact.is_network_proved(since, policy.start + policy.timeout) => is_proved,
    };
    if !is_proved {
        return Err(failure);
    }
    contact.is_not_missing(identifier);
    outcome
}

/// The command that the error of `manager` offers. Waits until the other drains of this process have a response or have failed, so that one error has
/// the command for all of them.
pub(crate) async fn offer(
    failure: &Failure<NotDrained>,
    manager: &str,
    contacts: &Contacts,
    policy: &DrainPolicy,
    stop: &CancellationToken,
) -> Option<Offer> {
    if !can_be_confirmed(failure, policy) {
        return None;
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = contacts.settled(policy.start + policy.timeout) => {}
    }
    Some(contacts.offer(manager))
}

fn can_be_confirmed(failure: &Failure<NotDrained>, policy: &DrainPolicy) -> bool {
    failure.offers_confirmation() && policy.on_unreachable != OnUnreachable::Confirmed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{
        client::{ClientError, Contacts},
        fleet::{drain::tests::policy, test_wrapper::ScriptedFault},
    };

    #[tokio::test(start_paused = true)]
    async fn silent_host_is_terminated_only_beside_one_that_responds() {
        let policy = DrainPolicy {
            on_unreachable: OnUnreachable::AssumeTerminated,
            timeout: Duration::from_secs(60),
            ..policy()
        };
        let outcome = async |responds: bool| {
            let contacts = Contacts::default();
            let [silent, other] = ["a:22", "b:22"].map(|host| contacts.to(&host.parse().unwrap()));
            if responds {
                other.noted(Ok(())).unwrap();
            }
            let error = ClientError::from(ScriptedFault::Down);
            let (since, waited) = (Instant::now(), Duration::ZERO);
            let assumed = Ok(Drained::AssumedTerminated { attempts: 5, since, waited, error });
            let stop = CancellationToken::new();
            proved(assumed, &silent, silent.begin(), &policy, "i-1", &stop).await
        };
        assert!(matches!(outcome(true).await, Ok(Drained::AssumedTerminated { .. })));
        let failure = outcome(false).await.unwrap_err();
        assert!(
            matches!(failure.reason, Reason::Problem(NotDrained::NetworkUnproved { attempts: 5, .. })),
            "{failure:?}"
        );
    }
}

//! Calls that hang.

use super::*;

/// A connection that was not closed: calls do not fail, but hang until their time limit, or indefinitely without one.
struct HalfOpen<F> {
    wrapper: Scripted<F>,
    cut: std::ops::Range<u64>,
    limit: Option<Duration>,
}

impl<F: Fn(ScriptInput) -> Result<RunnerStatus, ScriptedFault> + Sync> HalfOpen<F> {
    async fn pass(&self) -> Result<(), ScriptedFault> {
        if !self.cut.contains(&self.wrapper.elapsed().as_secs()) {
            return Ok(());
        }
        match self.limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
        Err(ScriptedFault::Down)
    }
}

impl<F: Fn(ScriptInput) -> Result<RunnerStatus, ScriptedFault> + Sync> Wrapper for &HalfOpen<F> {
    fn until(&self, _: Instant) -> Self {
        self
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        self.pass().await?;
        (&self.wrapper).read_status().await
    }

    async fn changed(&self) {
        (&self.wrapper).changed().await;
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        self.pass().await?;
        (&self.wrapper).drain(request).await
    }

    async fn start(&self) -> Result<crate::client::Start, ClientError> {
        self.pass().await?;
        (&self.wrapper).start().await
    }
}

#[tokio::test(start_paused = true)]
async fn drain_continues_after_calls_hung() {
    // The default limits of a connection and a call, together.
    let limit = Some(Duration::from_secs(40));
    let wrapper = HalfOpen { wrapper: Scripted::new(draining(900)), cut: 100..700, limit };
    let start = Instant::now();
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, false));
    assert_eq!(wrapper.wrapper.requests(), (1, 0));
    assert!(start.elapsed() < Duration::from_secs(910), "{:?}", start.elapsed());

    // The runner ends during the cut: that is seen at most one call and one pause after it.
    let wrapper = HalfOpen { wrapper: Scripted::new(draining(300)), cut: 100..700, limit };
    let start = Instant::now();
    assert!(drained(&policy(), &wrapper).await.is_ok());
    assert!((700..=752).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hung_call_does_not_delay_deadline_or_stop() {
    let hung = || HalfOpen { wrapper: Scripted::new(draining(900)), cut: 100..u64::MAX, limit: None };
    let short = DrainPolicy { timeout: Duration::from_secs(600), ..policy() };
    let start = Instant::now();
    let error = drained(&short, &hung()).await.unwrap_err();
    assert!(is_timed_out(&error) && error.last.is_some(), "{error:?}");
    assert_eq!(error.requested, Requested::Accepted);
    assert_eq!(start.elapsed().as_secs(), 600);

    let (stop, hung, policy) = (CancellationToken::new(), hung(), policy());
    let wrapper = &hung;
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(run("m1", &wrapper, &policy, &stop), async {
        tokio::time::sleep(Duration::from_secs(200)).await;
        stop.cancel();
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.reason, Reason::Interrupted(_)), "{error:?}");
    assert_eq!(error.requested, Requested::Accepted);
    assert_eq!(start.elapsed().as_secs(), 200);
}

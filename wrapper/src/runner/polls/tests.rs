use tokio::time::advance;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A runner whose sections had one accepted job request each.
struct Runner {
    config: RunnerConfig,
    metrics: RunnerMetrics,
    polls: Polls,
}

impl Runner {
    fn new(sections: usize) -> Self {
        let names: Vec<_> = (0..sections).map(|number| format!("s{number}")).collect();
        let section = |name: &String| Section { name: name.clone(), ..Section::default() };
        let config = RunnerConfig {
            concurrent: Some(4),
            sections: names.iter().map(section).collect(),
            ..RunnerConfig::default()
        };
        let requests = Requests { accepted: 1, ..Requests::default() };
        let sections = names.into_iter().map(|name| (name, requests)).collect();
        let metrics = RunnerMetrics { jobs: Some(0), sections, ..RunnerMetrics::default() };
        Self { config, metrics, polls: Polls::default() }
    }

    fn requests(&mut self) -> &mut Requests {
        self.metrics.sections.get_mut("s0").unwrap()
    }

    fn probe(&mut self) -> Option<String> {
        self.polls.update(&self.metrics, Some(&self.config));
        self.polls.seen[&("s0".to_owned(), None)].fault(self.polls.router)
    }

    /// The time until the first section has a fault, in minutes.
    async fn minutes_until_fault(&mut self) -> u64 {
        let begin = Instant::now();
        while self.probe().is_none() {
            assert!(begin.elapsed() < 100 * MINUTE, "still polling");
            advance(MINUTE / 2).await;
        }
        begin.elapsed().as_secs() / 60
    }
}

#[tokio::test(start_paused = true)]
async fn section_without_accepted_requests_is_not_polling() {
    let mut runner = Runner::new(1);
    assert_eq!(runner.minutes_until_fault().await, 5);
    assert_eq!(runner.probe().as_deref(), Some("GitLab has accepted no job request for 5m"));
    assert_eq!(runner.polls.polling(&runner.config), 0);
    runner.requests().accepted = 2;
    assert_eq!(runner.minutes_until_fault().await, 5);
    // They end, and fail.
    runner.requests().accepted = 3;
    for failed in 1..=10 {
        runner.requests().other = failed;
        runner.requests().unanswered = failed;
        assert_eq!(runner.probe(), None);
        advance(MINUTE / 2).await;
    }
    assert_eq!(runner.probe().as_deref(), Some("GitLab has accepted no job request for 5m"));
    runner.requests().accepted = 4;
    assert_eq!(runner.probe(), None);
    // The executor has no free machine, so that no request is sent.
    runner.requests().without_machine = 1;
    assert_eq!(runner.minutes_until_fault().await, 5);
    runner.requests().rejected = 1;
    assert!(runner.probe().unwrap().contains("rejects its token"));
}

#[tokio::test(start_paused = true)]
async fn token_without_accepted_request_before_pause_is_rejected() {
    let rejected = |accepted, failures| {
        let mut runner = Runner::new(1);
        *runner.requests() = Requests { accepted, ..*runner.requests() };
        runner.probe();
        runner.requests().rejected = failures;
        runner.requests().health_failures = failures;
        runner.probe();
        runner.polls.rejected()
    };
    assert_eq!([rejected(0, 2), rejected(0, 3), rejected(1, 3)], [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn time_without_free_slot_is_not_counted() {
    let mut runner = Runner::new(1);
    let busy = async |runner: &mut Runner| {
        for _ in 0..20 {
            assert_eq!(runner.probe(), None);
            advance(MINUTE).await;
        }
        runner.probe();
    };
    runner.metrics.jobs = Some(4);
    busy(&mut runner).await;
    runner.metrics.jobs = Some(3);
    assert_eq!(runner.minutes_until_fault().await, 5);
    // The section has reached its own limit.
    let limit = |limit| BTreeMap::from([(("s0".to_owned(), None), limit)]);
    runner.metrics.configured = limit(2);
    runner.requests().jobs = 2;
    busy(&mut runner).await;
    runner.metrics.configured = limit(3);
    assert_eq!(runner.minutes_until_fault().await, 5);
    // The metrics cannot be read, for example while the process is suspended.
    runner.requests().accepted = 2;
    runner.probe();
    let unread = RunnerMetrics::default();
    let read = std::mem::replace(&mut runner.metrics, unread);
    busy(&mut runner).await;
    runner.metrics = RunnerMetrics { jobs: Some(0), ..read };
    assert_eq!(runner.minutes_until_fault().await, 5);
}

/// With one free slot, the runner sends the requests of its sections in turn, and GitLab can delay each response by 50 s.
#[tokio::test(start_paused = true)]
async fn many_sections_and_long_check_interval_need_more_time() {
    assert_eq!(Runner::new(2).minutes_until_fault().await, 5);
    assert_eq!(Runner::new(12).minutes_until_fault().await, 30);
    let mut rare = Runner::new(2);
    rare.config.check_interval = 10 * MINUTE;
    assert_eq!(rare.minutes_until_fault().await, 30);
    assert_eq!(rare.probe().as_deref(), Some("GitLab has accepted no job request for 30m"));
}

#[tokio::test(start_paused = true)]
async fn ended_requests_of_job_router_count() {
    let mut runner = Runner::new(1);
    runner.config.sections[0].uses_job_router = true;
    for requests in 0..20 {
        runner.metrics.router = Some(JobRouter { requests, ..JobRouter::default() });
        assert_eq!(runner.probe(), None);
        advance(MINUTE).await;
    }
    assert_eq!(runner.minutes_until_fault().await, 4);
    let fault = runner.probe().unwrap();
    assert!(fault.starts_with("GitLab has accepted no job request for 5m; its job requests are"));
}

#[test]
fn two_sections_with_one_token_count_twice() {
    let (mut polls, mut metrics) = (Polls::default(), RunnerMetrics::default());
    metrics.add_line("gitlab_runner_limit{runner=\"token\",runner_name=\"a\"} 0");
    metrics.add_line("gitlab_runner_limit{runner=\"token\",runner_name=\"b\"} 0");
    polls.update(&metrics, None);
    assert_eq!(polls.known(), 2);
}

/// The response of GitLab to the requests of a section.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Response {
    /// 204 or 201.
    Accepts,
    Status(&'static str),
    /// The runner cannot send the request.
    NotSent,
}

/// A section of a runner whose tokens begin alike, in milliseconds.
struct Sending {
    name: &'static str,
    response: Response,
    /// The time until the response, of the first request, and of the others.
    delays: [u64; 2],
    open_until: Option<u64>,
    requests: u64,
    turns: u64,
    failed_checks: u64,
}

impl Sending {
    /// Goes on to this time, with the turns of the section, and counts the results of all sections.
    fn go_on(&mut self, time: u64, is_turn: bool, results: &mut BTreeMap<&'static str, u64>) {
        if self.open_until.is_some_and(|until| until <= time) {
            self.open_until = None;
            match self.response {
                Response::Accepts => *results.entry("204").or_default() += 1,
                Response::Status(status) => *results.entry(status).or_default() += 1,
                Response::NotSent => {}
            }
            let is_failed = matches!(self.response, Response::Status("403") | Response::NotSent);
            self.failed_checks += u64::from(is_failed);
        }
        if is_turn {
            self.turns += 1;
            if self.open_until.is_none() {
                self.open_until = Some(time + self.delays[usize::from(self.requests > 0)]);
                self.requests += 1;
            }
        }
    }
}

/// Which sections polled at each probe of two minutes, in steps of 200 ms: (first, second). GitLab accepts the first. `urls`: of their GitLab.
async fn two_minutes(
    response: Response,
    delays: [u64; 2],
    interval: u64,
    urls: [&str; 2],
) -> Vec<(bool, bool)> {
    let section = |name, response, delays| Sending {
        name,
        response,
        delays,
        open_until: None,
        requests: 0,
        turns: 0,
        failed_checks: 0,
    };
    // GitLab holds the requests of an idle section, after its first one.
    let held = if response == Response::Accepts { delays } else { [50, 50] };
    let mut sections = [section("a", Response::Accepts, held), section("b", response, delays)];
    let configured = ["a", "b"].into_iter().zip(urls).map(|(name, url)| Section {
        name: name.to_owned(),
        gitlab: Some(url.to_owned()),
        ..Section::default()
    });
    let config = RunnerConfig { sections: configured.collect(), ..RunnerConfig::default() };
    let (mut polls, mut results, mut seen) = (Polls::default(), BTreeMap::new(), Vec::new());
    for time in (0..120_000).step_by(50) {
        advance(Duration::from_millis(50)).await;
        for (number, section) in sections.iter_mut().enumerate() {
            section.go_on(time, time % interval == interval / 2 * number as u64, &mut results);
        }
        if time % 200 != 0 {
            continue;
        }
        let mut metrics = RunnerMetrics::default();
        for Sending { name, turns, failed_checks, .. } in &sections {
            let labels = format!("runner=\"Zzo0YWUxe\",runner_name=\"{name}\"");
            metrics.add_line(&format!("gitlab_runner_limit{{{labels}}} 0"));
            metrics.add_line(&format!("gitlab_runner_worker_feeds_total{{{labels}}} {turns}"));
            let failures = "gitlab_runner_worker_health_check_failures_total";
            metrics.add_line(&format!("{failures}{{{labels}}} {failed_checks}"));
        }
        for (status, count) in &results {
            let labels = format!("endpoint=\"request_job\",runner=\"Zzo0YWUxe\",status=\"{status}\"");
            metrics.add_line(&format!("gitlab_runner_api_request_statuses_total{{{labels}}} {count}"));
        }
        polls.update(&metrics, Some(&config));
        let is_polling =
            |name: &str| polls.seen[&("Zzo0YWUxe".to_owned(), Some(name.to_owned()))].fault(None).is_none();
        seen.push((is_polling("a"), is_polling("b")));
    }
    seen
}

const ONE_GITLAB: [&str; 2] = ["https://gitlab.example"; 2];

/// Routable tokens of one group begin alike, and the runner counts the results of their requests together.
#[tokio::test(start_paused = true)]
async fn section_that_gitlab_does_not_accept_never_polls_by_the_token_of_another() {
    let responses = ["403", "401", "500", "-1"].map(Response::Status).into_iter().chain([Response::NotSent]);
    for response in responses {
        // GitLab answers immediately, slowly, later than the next turn.
        for delays in [[50, 50], [400, 400], [700, 100], [3000, 3000], [20_000, 50]] {
            for interval in [1000, 100] {
                let seen = two_minutes(response, delays, interval, ONE_GITLAB).await;
                assert!(seen.iter().all(|(_, second)| !second), "{response:?} {delays:?} {interval}");
            }
        }
        // Another GitLab, which hangs first.
        let seen = two_minutes(response, [100_000, 50], 1000, ["https://a.example", "https://b.example"]);
        assert!(seen.await.iter().all(|(_, second)| !second), "{response:?}");
    }
    for status in ["403", "500"] {
        let seen = two_minutes(Response::Status(status), [50, 50], 1000, ONE_GITLAB).await;
        assert!(seen.iter().any(|(first, _)| *first), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn accepted_sections_with_one_short_token_poll() {
    // The last is a request that GitLab holds. With the shorter interval, the runner skips turns, so that the counters prove nothing.
    let cases =
        [(1000, [50, 50], 20), (1000, [400, 400], 20), (1000, [50, 50_000], 20), (100, [50, 50_000], 560)];
    for (interval, delays, limit) in cases {
        let seen = two_minutes(Response::Accepts, delays, interval, ONE_GITLAB).await;
        let first = seen.iter().position(|both| *both == (true, true));
        assert!(first.is_some_and(|first| first < limit), "{interval} {delays:?}: {first:?}");
        assert!(seen[limit..].iter().all(|both| *both == (true, true)), "{interval} {delays:?}");
    }
}

/// A job has a name. Without the metric of the turns, only a job shows which section GitLab accepts.
#[test]
fn job_shows_which_of_the_sections_gitlab_accepts() {
    let page = |begun: u64| {
        let mut metrics = RunnerMetrics::default();
        for (name, jobs) in [("a", begun), ("b", 0)] {
            let labels = format!("runner=\"token\",runner_name=\"{name}\"");
            metrics.add_line(&format!("gitlab_runner_limit{{{labels}}} 0"));
            metrics.add_line(&format!("gitlab_runner_jobs_total{{{labels}}} {jobs}"));
        }
        metrics.add_line(
            "gitlab_runner_api_request_statuses_total{endpoint=\"request_job\",runner=\"token\",status=\"204\"} 90",
        );
        metrics
    };
    let mut polls = Polls::default();
    let faults = |polls: &Polls| polls.faults().into_iter().map(|fault| fault.reason).collect::<Vec<_>>();
    polls.update(&page(0), None);
    polls.update(&page(0), None);
    let unknown = |name| {
        format!(
            "runner {name:?} (token): another section has the same short token, and the runner's metrics do not show yet \
             which of them GitLab accepts"
        )
    };
    assert_eq!(faults(&polls), [unknown("a"), unknown("b")]);
    polls.update(&page(1), None);
    assert_eq!(faults(&polls), [unknown("b")]);
}

//! A rollout to managers that can never take jobs drains nobody: each cause, with and without an HTTP server of the runner, under grit-wrapper and under
//! upstream's wrapper. `rollout_examples/dead_managers.rs` has the layouts.

use std::time::Duration;

use grit_tests::{
    lab::{Lab, event::What, host::HostSpec, queue::Access},
    poll,
    rollout::PATIENCE,
    terraform::{Run, Workspace},
};
use serde_json::{Map, Value as Json, json};

use crate::upstream_wrapper::{Upstream, manager};

const TOKEN: &str = "glpat-read";

/// Why a manager never takes a job.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// GitLab rejects the token.
    Token,
    /// Nothing listens at the URL of GitLab.
    Away,
    /// Another server listens there.
    Url,
    Paused,
}

const CAUSES: [(&str, Cause); 4] =
    [("token", Cause::Token), ("away", Cause::Away), ("url", Cause::Url), ("paused", Cause::Paused)];

const MAIN: &str = r#"
variable "managers" {
  type = map(any)
}
variable "level" {
  type    = string
  default = null
}
resource "grit_runner_drain" "manager" {
  for_each       = var.managers
  instance_id    = each.value.instance_id
  runner_manager = each.value
  timeouts       = { delete = "20s" }
  lifecycle { create_before_destroy = true }
}
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id }
  level           = var.level
  timeouts        = { create = "60s", update = "25s" }
  lifecycle { create_before_destroy = true }
}
"#;

struct Fleet {
    workspace: Workspace,
    lab: Lab,
}

impl Fleet {
    fn start() -> Self {
        let lab = Lab::start().unwrap();
        lab.queue().add_api_token(TOKEN, Access::Reporter);
        let other = format!("{}/other", lab.queue().url());
        lab.cloud().shape(move |name, spec| {
            let is = |cause: &str| name.starts_with(cause);
            spec.listen = !name.ends_with("-bare");
            if is("away") {
                spec.url = Some("http://127.0.0.1:1".to_owned());
            } else if is("url") {
                spec.url = Some(other.clone());
            }
            *spec = std::mem::take::<HostSpec>(spec).wrapper(&["--probe-interval=500ms"]);
        });
        let workspace = Workspace::new(&["grit"]).unwrap();
        workspace.write("main.tf", MAIN).unwrap();
        let provider = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": {
                "ssh": { "private_key_path": lab.client_key().path },
                "gitlab": { "url": lab.queue().url(), "token": TOKEN },
            } },
        });
        workspace.write("provider.tf.json", &provider.to_string()).unwrap();
        let fleet = Self { workspace, lab };
        fleet.apply(&fleet.manager("old"), None).succeeded();
        fleet
    }

    /// A new host, as an entry of the map.
    fn manager(&self, name: &str) -> Map<String, Json> {
        let (instance, _) = self.lab.cloud().create(name, "19.2.0").unwrap();
        let mut manager = instance.runner_manager();
        manager["instance_id"] = json!(instance.id);
        Map::from_iter([(name.to_owned(), manager)])
    }

    fn apply(&self, managers: &Map<String, Json>, level: Option<&str>) -> Run {
        let variables = json!({ "managers": managers, "level": level });
        self.workspace.write("terraform.tfvars.json", &variables.to_string()).unwrap();
        self.workspace.apply().unwrap()
    }

    /// Each of these managers has an error with this code and text; nothing was drained, and the old manager takes jobs.
    #[track_caller]
    fn assert_refused(&self, failed: &Run, wanted: &[(String, &str, &str)]) {
        let errors = failed.errors();
        for (name, code, text) in wanted {
            let of_it: Vec<_> = errors
                .iter()
                .filter(|(_, detail)| detail.contains(&format!("Runner manager {name:?}")))
                .collect();
            let [(_, detail)] = of_it[..] else { panic!("{name}: {errors:#?}") };
            assert!(detail.ends_with(&format!("Code: {code}")) && detail.contains(text), "{name}: {detail}");
        }
        assert_eq!(errors.len(), wanted.len(), "{errors:#?}");
        let signalled = self.lab.events().find(|event| matches!(event.what, What::RunnerSignal { .. }));
        assert_eq!(signalled, None, "a runner was signalled");
        self.lab.queue().submit(1, Duration::ZERO);
        let tally = self.lab.queue().wait_all_ended(PATIENCE).unwrap();
        assert_eq!(tally.lost, 0, "{tally:?}");
    }
}

#[test]
fn rollout_to_dead_managers_drains_nobody() {
    let fleet = Fleet::start();
    let queue = fleet.lab.queue();
    let (mut managers, mut wanted) = (Map::new(), Vec::new());
    for (name, cause) in CAUSES {
        for listens in [true, false] {
            let name = if listens { name.to_owned() } else { format!("{name}-bare") };
            let token = format!("glrt-{name}");
            match cause {
                Cause::Token => queue.refuse_token(&token),
                Cause::Paused => queue.pause_token(&token),
                Cause::Away | Cause::Url => {}
            }
            managers.extend(fleet.manager(&name));
            let (instance, _) =
                fleet.lab.cloud().instances().into_iter().find(|(it, _)| it.name == name).unwrap();
            let upstream = format!("{name}-upstream");
            let mut behind = manager(&instance, Upstream::new(Duration::ZERO, Duration::ZERO).serve());
            behind["instance_id"] = json!(upstream);
            managers.insert(upstream.clone(), behind);
            wanted.push((upstream, "invalid_config", "upstream's `gitlab-runner wrapper`"));
            wanted.push(match (cause, listens) {
                (_, false) => (name, "invalid_config", "listen_address = \"127.0.0.1:9252\""),
                (Cause::Token, _) => (name, "token_rejected", "GitLab rejects its token"),
                (Cause::Away, _) => (name, "timed_out", "its job requests failed"),
                (Cause::Url, _) => (name, "timed_out", "its job requests"),
                (Cause::Paused, _) => (name, "timed_out", "is paused in GitLab"),
            });
        }
    }
    let failed = fleet.apply(&managers, None).failed();
    fleet.assert_refused(&failed, &wanted);

    // `process` accepts a manager that may not take jobs, and GitLab still has the word: grit-wrapper reports where the runner is registered.
    let by_gitlab: Map<String, Json> = managers
        .into_iter()
        .filter(|(name, _)| ["token", "token-bare", "paused", "paused-bare"].contains(&name.as_str()))
        .collect();
    let failed = fleet.apply(&by_gitlab, Some("process")).failed();
    let wanted: Vec<_> = by_gitlab
        .keys()
        .map(|name| {
            let text =
                if name.starts_with("paused") { "is paused in GitLab" } else { "has not heard of manager" };
            (name.clone(), "timed_out", text)
        })
        .collect();
    fleet.assert_refused(&failed, &wanted);
}

/// A pause that ends in time, and a token without access.
#[test]
fn health_check_asks_gitlab_until_it_confirms() {
    let fleet = Fleet::start();
    fleet.lab.queue().pause_token("glrt-new");
    let new = fleet.manager("new");
    std::thread::scope(|scope| {
        let apply = scope.spawn(|| fleet.apply(&new, None));
        poll::until("the new runner polls", PATIENCE, || {
            let polls = |it: &What| matches!(it, What::RunnerPolling { .. });
            fleet.lab.events().find(|event| event.subject == "new" && polls(&event.what)).ok_or(())
        });
        fleet.lab.queue().resume_token("glrt-new");
        apply.join().unwrap().succeeded();
    });
    assert_eq!(fleet.lab.events().signals(Some("old")), ["SIGQUIT"]);

    fleet.lab.queue().add_api_token(TOKEN, Access::None);
    let failed = fleet.apply(&fleet.manager("third"), None).failed();
    let errors = failed.errors();
    assert!(errors.len() == 1 && errors[0].1.ends_with("Code: refused"), "{errors:?}");
    assert!(errors[0].1.contains("403"), "{errors:?}");
    assert_eq!(fleet.lab.events().signals(Some("new")), Vec::<String>::new());
}

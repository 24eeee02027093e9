//! The calls of one provider process.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures::StreamExt as _;
use grit_plugin::Service;
use grit_proto::tfplugin6::{self as pb, provider_server::Provider as _};
use grit_provider::testing::simulation::{Clients, Connections, SimulatedGitlab, registry};
use tonic::Request;

use super::{Kind, promises::is_recorded, values};
use crate::{
    dynamic::Dynamic,
    simulation::{
        gitlab::{Api, Ended, TOKEN, URL},
        network::Lines,
        origin::Origin,
        scenario::Receipt,
        world::World,
    },
};

/// A provider process. A plan has one, and an apply has another.
#[derive(Clone)]
pub(super) struct Process {
    service: Arc<Service>,
    world: Arc<World>,
    gitlab: Arc<Api>,
    origin: Arc<Origin>,
    /// The user has interrupted the command.
    is_stopped: Arc<AtomicBool>,
}

/// The titles of the errors of a call.
pub(super) type Errors = Vec<String>;

pub(super) struct Planned {
    pub(super) value: Dynamic,
    pub(super) replaces: bool,
    pub(super) private: Vec<u8>,
}

pub(super) struct Applied {
    /// Null after a successful destroy, and after a failed one.
    pub(super) value: Dynamic,
    pub(super) private: Vec<u8>,
    pub(super) errors: Errors,
}

impl Process {
    pub(super) async fn start(world: &Arc<World>, assumed: &str, origin: &Arc<Origin>) -> Self {
        let gitlab = Arc::new(Api::new(Arc::clone(world)));
        let connections = Connections::Simulated(Arc::clone(&gitlab) as Arc<dyn SimulatedGitlab>);
        let has_gitlab = world.now().gitlab.settings.receipt != Receipt::None;
        let clients = Clients::new(Lines::new(Arc::clone(world), Arc::clone(origin)));
        let variables = BTreeMap::from([("GRIT_ASSUME_TERMINATED".to_owned(), assumed.to_owned())]);
        let process = Self {
            service: Arc::new(Service::new(registry(clients, connections, variables))),
            world: Arc::clone(world),
            gitlab,
            origin: Arc::clone(origin),
            is_stopped: Arc::default(),
        };
        let config = values::message(&values::provider(has_gitlab.then_some((URL, TOKEN))));
        let request = pb::configure_provider::Request { config, ..Default::default() };
        let response = process.service.configure_provider(Request::new(request)).await;
        let errors = errors(&response.expect("an answer").into_inner().diagnostics);
        assert!(errors.is_empty(), "configure: {errors:?}");
        process
    }

    pub(super) async fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        self.origin.interrupted();
        let _stopped = self.service.stop_provider(Request::new(pb::stop_provider::Request {})).await;
    }

    pub(super) async fn upgrade(&self, kind: Kind, value: &Dynamic) -> Result<(), Errors> {
        let raw_state = Some(pb::RawState { json: values::json(value), ..Default::default() });
        let type_name = kind.type_name().to_owned();
        let request = pb::upgrade_resource_state::Request { type_name, version: 0, raw_state };
        let response = self.service.upgrade_resource_state(Request::new(request)).await.expect("an answer");
        none(&response.into_inner().diagnostics)
    }

    pub(super) async fn read(
        &self,
        kind: Kind,
        value: &Dynamic,
        private: &[u8],
    ) -> Result<(Dynamic, Vec<u8>), Errors> {
        let request = pb::read_resource::Request {
            type_name: kind.type_name().to_owned(),
            current_state: values::message(value),
            private: private.to_vec(),
            ..Default::default()
        };
        let response =
            self.service.read_resource(Request::new(request)).await.expect("an answer").into_inner();
        none(&response.diagnostics)?;
        Ok((values::decoded(response.new_state.as_ref()), response.private))
    }

    pub(super) async fn validate(&self, kind: Kind, config: &Dynamic) -> Result<(), Errors> {
        let request = pb::validate_resource_config::Request {
            type_name: kind.type_name().to_owned(),
            config: values::message(config),
            ..Default::default()
        };
        let response = self.service.validate_resource_config(Request::new(request)).await.expect("an answer");
        none(&response.into_inner().diagnostics)
    }

    /// Plans a change. A null `config` is a destroy.
    pub(super) async fn plan(
        &self,
        kind: Kind,
        config: &Dynamic,
        prior: &Dynamic,
        private: &[u8],
    ) -> Result<Planned, Errors> {
        let proposed = match config {
            Dynamic::Null => Dynamic::Null,
            config => values::proposed(config, prior, kind.computed()),
        };
        let request = pb::plan_resource_change::Request {
            type_name: kind.type_name().to_owned(),
            prior_state: values::message(prior),
            proposed_new_state: values::message(&proposed),
            config: values::message(config),
            prior_private: private.to_vec(),
            ..Default::default()
        };
        let response =
            self.service.plan_resource_change(Request::new(request)).await.expect("an answer").into_inner();
        none(&response.diagnostics)?;
        Ok(Planned {
            value: values::decoded(response.planned_state.as_ref()),
            replaces: !response.requires_replace.is_empty(),
            private: response.planned_private,
        })
    }

    pub(super) async fn apply(
        &self,
        kind: Kind,
        config: &Dynamic,
        prior: &Dynamic,
        planned: Planned,
    ) -> Applied {
        let request = pb::apply_resource_change::Request {
            type_name: kind.type_name().to_owned(),
            prior_state: values::message(prior),
            planned_state: values::message(&planned.value),
            config: values::message(config),
            planned_private: planned.private,
            ..Default::default()
        };
        let listens = Listens::new(self);
        let response =
            self.service.apply_resource_change(Request::new(request)).await.expect("an answer").into_inner();
        listens.end();
        let value = values::decoded(response.new_state.as_ref());
        let errors = errors(&response.diagnostics);
        match kind {
            Kind::Drain if planned.value == Dynamic::Null => {
                if let Dynamic::Text(instance) = values::member(prior, "instance_id") {
                    let manager = values::member(prior, "runner_manager");
                    self.drain_ended(instance, manager, &response.diagnostics, errors.is_empty());
                }
            }
            Kind::Shutdown => self.shutdown_ended(config, prior, &value, &response.diagnostics),
            Kind::Drain | Kind::Health | Kind::Instance => {}
        }
        Applied { value, private: response.private, errors }
    }

    fn drain_ended<'a>(
        &self,
        instance: &str,
        manager: &Dynamic,
        diagnostics: impl IntoIterator<Item = &'a pb::Diagnostic>,
        is_success: bool,
    ) {
        let Dynamic::Text(address) = values::member(manager, "address") else { return };
        let is_interrupted = self.is_stopped.load(Relaxed);
        let ended = Ended::new(instance, address, diagnostics, is_interrupted, &self.origin);
        let answers = self.gitlab.answers();
        self.world.now().drain_reported(instance, ended, is_success, &answers);
    }

    /// Each manager has its own warnings, and its evidence if its drain has succeeded.
    fn shutdown_ended(&self, config: &Dynamic, prior: &Dynamic, value: &Dynamic, all: &[pb::Diagnostic]) {
        let Dynamic::Object(managers) = values::member(config, "runner_managers") else { return };
        for (key, manager) in managers {
            let Dynamic::Text(instance) = values::member(manager, "instance_id") else { continue };
            let state = values::member(values::member(values::member(value, "managers"), key), "state");
            let has_ended = matches!(state, Dynamic::Text(state) if state != "draining" && state != "terminating")
                && !is_recorded(prior, value, key);
            let of_manager = all.iter().filter(|it| it.summary.split_whitespace().any(|word| word == key));
            self.drain_ended(instance, manager, of_manager, has_ended);
        }
    }
}

/// Terraform, or the user of an action, receives the warnings of a call, unless it is killed before the end of the call.
struct Listens<'a>(Option<&'a Api>);

impl<'a> Listens<'a> {
    fn new(process: &'a Process) -> Self {
        Self(Some(&process.gitlab))
    }

    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Listens<'_> {
    fn drop(&mut self) {
        if let Some(api) = self.0 {
            api.cut();
        }
    }
}

/// `terraform apply -invoke` of `grit_drain`, for one runner manager.
pub(in crate::simulation) async fn invoke(world: &Arc<World>, instance: &str, address: &str) {
    let origin = Arc::new(Origin::new(None));
    let process = Process::start(world, "", &origin).await;
    let manager = values::manager(instance, values::text(address));
    let managers = Dynamic::Object(values::members([("m", manager.clone())]));
    let config = values::action(values::members([("runner_managers", managers)]));
    let request = pb::invoke_action::Request {
        action_type: "grit_drain".to_owned(),
        config: values::message(&config),
        ..Default::default()
    };
    let listens = Listens::new(&process);
    let events = process.service.invoke_action(Request::new(request)).await.expect("a stream").into_inner();
    let events: Vec<_> = events.collect().await;
    listens.end();
    let completed = events.into_iter().filter_map(|event| match event.ok()?.r#type? {
        pb::invoke_action::event::Type::Completed(completed) => Some(completed.diagnostics),
        pb::invoke_action::event::Type::Progress(_) => None,
    });
    let diagnostics: Vec<_> = completed.flatten().collect();
    let errors = errors(&diagnostics);
    process.drain_ended(instance, &manager, &diagnostics, errors.is_empty());
    let mut now = world.now();
    now.log("user", format!("grit_drain of {address} has ended: {}", errors.join("; ")));
    now.trace.count(format!("action grit_drain: {}", errors.first().map_or("done", String::as_str)));
}

fn errors(diagnostics: &[pb::Diagnostic]) -> Errors {
    let is_error = |it: &&pb::Diagnostic| it.severity() == pb::diagnostic::Severity::Error;
    let text = |it: &pb::Diagnostic| {
        let code =
            it.detail.lines().rev().find_map(|line| line.split_once("Code: ")).map_or("", |(_, code)| code);
        format!("{} ({code})", it.summary)
    };
    diagnostics.iter().filter(is_error).map(text).collect()
}

fn none(diagnostics: &[pb::Diagnostic]) -> Result<(), Errors> {
    let errors = errors(diagnostics);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

//! A stand-in for a cluster: the API server, the controllers of StatefulSets and Deployments, and the kubelet, as far as `kubectl` shows them. Pods are
//! played by podman.
//!
//!     kubectl [--namespace NAME] [--kubeconfig FILE] [--context NAME] VERB ...
//!     apply --filename FILE
//!     delete statefulset|deployment|pod NAME
//!     exec [--stdin] POD|deployment/NAME [--container NAME] -- COMMAND
//!
//! As unpleasant as a cluster: each call takes up to [`Settings::latency_ms`]; a stream of `exec` is cut after [`Settings::cut_after`]; an emptyDir belongs to
//! root, and is writable for all; the pods of a deleted StatefulSet end some time after the command; a deleted pod whose StatefulSet exists is created again,
//! with empty volumes.
//!
//! It lacks: authentication and RBAC, schemas, scheduling, probes (tests ask as the kubelet does), other kinds (they are only stored). The pods share the
//! network of the machine: each pod has free ports, which replace those in its environment and configuration. A container that is restarted keeps its
//! file system.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions, Permissions},
    io::Write as _,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::sshd::free_address;

/// The environment variable with the directory of the cluster.
pub const CLUSTER: &str = "GRIT_TEST_CLUSTER";

/// The faults of a cluster, in its directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// The maximum duration of a call.
    pub latency_ms: u64,
    /// After this time, in seconds, a stream of `exec` is cut.
    pub cut_after: Option<f64>,
}

/// A pod that was created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pod {
    pub name: String,
    /// The address of the wrapper's HTTP server in the network of the machine.
    pub address: String,
    /// The address of the runner's HTTP server.
    pub runner: String,
    /// `statefulset/NAME` or `deployment/NAME`; empty for a pod of its own.
    pub owner: String,
    /// Its `spec`, as in the manifest.
    pub spec: Json,
}

impl Pod {
    /// The name of its first container in podman.
    #[must_use]
    pub fn container(&self) -> String {
        format!("{}-{}", self.name, text(&self.spec["containers"][0]["name"]))
    }
}

/// The program `kubectl`.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        let _closed = writeln!(std::io::stderr(), "{error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let cluster = Cluster::of(&PathBuf::from(std::env::var_os(CLUSTER).context(CLUSTER)?))?;
    let call = Call::parse(std::env::args().skip(1).collect());
    thread::sleep(Duration::from_millis(random() % cluster.settings.latency_ms.max(1)));
    match call.words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["apply"] => cluster.apply(call.flags.get("filename").context("error: must specify --filename")?)?,
        ["delete", "pod", name] => cluster.delete_pod(name)?,
        ["delete", kind, name] => cluster.delete_owner(kind, name)?,
        ["exec", target] => return cluster.exec(target, &call),
        _ => bail!("error: unknown command {:?}", call.words),
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments of a call.
#[derive(Default)]
struct Call {
    words: Vec<String>,
    flags: BTreeMap<String, String>,
    /// After `--`.
    command: Vec<String>,
}

impl Call {
    fn parse(arguments: Vec<String>) -> Self {
        let mut call = Self::default();
        let mut rest = arguments.into_iter();
        while let Some(word) = rest.next() {
            match word.strip_prefix("--") {
                Some("") => call.command = rest.by_ref().collect(),
                Some(flag) if flag == "stdin" => drop(call.flags.insert(flag.to_owned(), String::new())),
                Some(flag) => {
                    let (name, value) = match flag.split_once('=') {
                        Some((name, value)) => (name.to_owned(), value.to_owned()),
                        None => (flag.to_owned(), rest.next().unwrap_or_default()),
                    };
                    call.flags.insert(name, value);
                }
                None => call.words.push(word),
            }
        }
        call
    }
}

/// The state of a cluster: a directory.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    settings: Settings,
}

impl Cluster {
    /// The cluster in this directory.
    pub fn of(folder: &Path) -> anyhow::Result<Self> {
        let settings = match fs::read(folder.join("settings.json")) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(_) => Settings::default(),
        };
        Ok(Self { folder: folder.to_owned(), settings })
    }

    /// Podman, with the storage of the cluster.
    #[must_use]
    pub fn podman(&self) -> Command {
        let mut podman = Command::new("podman");
        podman.env("CONTAINERS_CONF", self.folder.join("containers.conf"));
        podman.env("CONTAINERS_STORAGE_CONF", self.folder.join("storage.conf"));
        podman.stdin(Stdio::null());
        podman
    }

    /// The pods, by name.
    pub fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let Ok(files) = fs::read_dir(self.folder.join("pods")) else { return Ok(Vec::new()) };
        let mut pods = Vec::new();
        for file in files {
            // It may just be deleted.
            if let Ok(text) = fs::read(file?.path()) {
                pods.push(serde_json::from_slice::<Pod>(&text)?);
            }
        }
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    fn object(&self, kind: &str, name: &str) -> PathBuf {
        self.folder.join("objects").join(format!("{}.{name}.json", kind.to_lowercase()))
    }

    /// Adds a line to the events of the cluster, with the time since 1970 in seconds.
    fn event(&self, what: &str) -> anyhow::Result<()> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let mut log = OpenOptions::new().create(true).append(true).open(self.folder.join("events"))?;
        Ok(log.write_all(format!("{:.3} {what}\n", now.as_secs_f64()).as_bytes())?)
    }

    fn apply(&self, file: &str) -> anyhow::Result<()> {
        let manifest = match file {
            "-" => std::io::read_to_string(std::io::stdin())?,
            file => fs::read_to_string(file)
                .with_context(|| format!("error: the path {file:?} does not exist"))?,
        };
        for object in documents(&manifest)? {
            let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
            let path = self.object(kind, name);
            let is_new = !path.exists();
            fs::create_dir_all(path.with_file_name(""))?;
            fs::write(&path, object.to_string())?;
            let kind = kind.to_lowercase();
            let template = &object["spec"]["template"]["spec"];
            let owner = format!("{kind}/{name}");
            match kind.as_str() {
                // The update strategy is OnDelete.
                "statefulset" if is_new => self.create_pod(&format!("{name}-0"), &owner, template)?,
                "deployment" if is_new => {
                    self.create_pod(&format!("{name}-{:05x}", random() & 0xf_ffff), &owner, template)?;
                }
                "pod" if is_new => self.create_pod(name, "", &object["spec"])?,
                _ => {}
            }
            println(&format!("{kind}/{name} {}", if is_new { "created" } else { "configured" }));
        }
        Ok(())
    }

    /// What the controller and the kubelet do.
    fn create_pod(&self, name: &str, owner: &str, spec: &Json) -> anyhow::Result<()> {
        let (address, runner) = (free_address()?.to_string(), free_address()?.to_string());
        let pod = Pod { name: name.to_owned(), address, runner, owner: owner.to_owned(), spec: spec.clone() };
        let folder = self.folder.join("volumes").join(format!("{name}-{:08x}", random() & 0xffff_ffff));
        let mut played = spec.clone();
        played["hostNetwork"] = true.into();
        let group = spec["securityContext"]["fsGroup"].as_u64().and_then(|group| u32::try_from(group).ok());
        let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        let mut mounted = Vec::new();
        for volume in &volumes {
            let path = folder.join(text(&volume["name"]));
            fs::create_dir_all(&path)?;
            match &volume["secret"]["secretName"] {
                Json::String(secret) => self.write_secret(secret, &path, &pod.runner)?,
                _ => {
                    // As the kubelet creates an emptyDir.
                    chown(&path, Some(0), group)?;
                    let mode = if group.is_some() { 0o2777 } else { 0o777 };
                    fs::set_permissions(&path, Permissions::from_mode(mode))?;
                }
            }
        }
        for container in played["containers"].as_array_mut().into_iter().flatten() {
            let variables = container["env"].as_array().cloned().unwrap_or_default();
            let value = |variable: &Json| text(&variable["value"]).replace("0.0.0.0:9253", &pod.address);
            let pod_name = [json!({ "name": "POD_NAME", "value": name })];
            let variables = variables.iter().map(|one| json!({ "name": one["name"], "value": value(one) }));
            container["env"] = variables.chain(pod_name).collect();
            for mount in container["volumeMounts"].as_array_mut().into_iter().flatten() {
                let path = folder.join(text(&mount["name"])).join(text(&mount["subPath"]));
                let name = format!("v{}", mounted.len());
                let kind = if path.is_file() { "File" } else { "Directory" };
                mounted.push(json!({ "name": name, "hostPath": { "path": path, "type": kind } }));
                mount["name"] = name.into();
                mount.as_object_mut().map(|mount| mount.remove("subPath"));
            }
            // The tests ask, as the kubelet does. The pods have no network of their own.
            for probe in ["startupProbe", "livenessProbe", "readinessProbe", "ports"] {
                container.as_object_mut().map(|container| container.remove(probe));
            }
        }
        played["volumes"] = mounted.into();
        let manifest =
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": played });
        let file = folder.join("pod.json");
        fs::create_dir_all(&folder)?;
        fs::write(&file, manifest.to_string())?;
        let path = self.folder.join("pods").join(format!("{name}.json"));
        fs::create_dir_all(path.with_file_name(""))?;
        fs::write(&path, serde_json::to_vec(&pod)?)?;
        self.event(&format!("created {name}"))?;
        succeed(self.podman().args(["kube", "play", "--quiet"]).arg(file))
    }

    /// A volume of a secret.
    fn write_secret(&self, name: &str, folder: &Path, address: &str) -> anyhow::Result<()> {
        let secret: Json = serde_json::from_slice(
            &fs::read(self.object("secret", name))
                .with_context(|| format!("MountVolume.SetUp failed: secret {name:?} not found"))?,
        )?;
        for (file, content) in secret["stringData"].as_object().into_iter().flatten() {
            let content = text(content).replace("127.0.0.1:9252", address);
            fs::write(folder.join(file), content)?;
        }
        Ok(())
    }

    /// Returns after the end of the pod, as `kubectl delete` does.
    fn delete_pod(&self, name: &str) -> anyhow::Result<()> {
        let path = self.folder.join("pods").join(format!("{name}.json"));
        let pod = fs::read(&path).map_err(|_| not_found(name))?;
        let pod: Pod = serde_json::from_slice(&pod)?;
        let grace = pod.spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        self.event(&format!("deleting {name}"))?;
        let begin = Instant::now();
        let container = pod.container();
        let hook = &pod.spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
        let hook: Vec<&str> = hook.as_array().into_iter().flatten().map(text).collect();
        if !hook.is_empty() {
            let limit = ["--signal=KILL".to_owned(), grace.to_string(), "podman".to_owned()];
            let podman = self.podman();
            let mut timeout = Command::new("timeout");
            timeout.args(limit).args(["exec", &container]).args(hook).stdin(Stdio::null());
            timeout.envs(podman.get_envs().filter_map(|(name, value)| Some((name, value?))));
            // A hook that fails is an event of the pod.
            let _failed = timeout.status()?;
        }
        let left = grace.saturating_sub(begin.elapsed().as_secs()).max(2);
        let stopped = succeed(self.podman().args(["stop", "--time", &left.to_string(), &container]));
        self.save_log(&container)?;
        let exit = self.podman().args(["inspect", "--format", "{{.State.ExitCode}}", &container]).output()?;
        let exit = String::from_utf8_lossy(&exit.stdout).trim().to_owned();
        succeed(self.podman().args(["pod", "rm", "--force", "--time", "0", name]))?;
        stopped?;
        fs::remove_file(&path)?;
        self.event(&format!("ended {name} {exit}"))?;
        println(&format!("pod \"{name}\" deleted"));
        match pod.owner.split_once('/') {
            Some((kind, owner)) if self.object(kind, owner).exists() => {
                self.create_pod(name, &pod.owner, &pod.spec)
            }
            _ => Ok(()),
        }
    }

    fn save_log(&self, container: &str) -> anyhow::Result<()> {
        let log = self.podman().args(["logs", container]).output()?;
        let folder = self.folder.join("logs");
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(container), [log.stdout, log.stderr].concat())?)
    }

    /// The pod ends later: the garbage collector deletes it.
    fn delete_owner(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let owner = format!("{}/{name}", kind.to_lowercase());
        let pods: Vec<Pod> = self.pods()?.into_iter().filter(|pod| pod.owner == owner).collect();
        fs::remove_file(self.object(kind, name))
            .map_err(|_| anyhow!("Error from server (NotFound): {kind} {name:?} not found"))?;
        for pod in pods {
            let mut later = Command::new(std::env::current_exe()?);
            later.arg0("kubectl").args(["delete", "pod", &pod.name]).process_group(0);
            later.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        }
        println(&format!("{owner} deleted"));
        Ok(())
    }

    fn exec(&self, target: &str, call: &Call) -> anyhow::Result<ExitCode> {
        let is_target = |pod: &Pod| pod.name == target || pod.owner == target;
        let pod = self.pods()?.into_iter().find(is_target).ok_or_else(|| not_found(target))?;
        let container = match call.flags.get("container") {
            Some(name) => format!("{}-{name}", pod.name),
            None => pod.container(),
        };
        let mut podman = self.podman();
        podman.arg("exec");
        if call.flags.contains_key("stdin") {
            podman.arg("--interactive").stdin(Stdio::inherit());
        }
        let mut child = podman.arg(&container).args(&call.command).spawn()?;
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                return Ok(ExitCode::from(code));
            }
            if self.settings.cut_after.is_some_and(|limit| begin.elapsed().as_secs_f64() >= limit) {
                self.event(&format!("cut {target}"))?;
                child.kill()?;
                child.wait()?;
                bail!(
                    "error: error reading from error stream: next reader: websocket: close 1006 (abnormal closure): unexpected EOF"
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The documents of a YAML file.
pub fn documents(yaml: &str) -> anyhow::Result<Vec<Json>> {
    let script = "import json, sys, yaml\njson.dump([one for one in yaml.safe_load_all(sys.stdin) if one], sys.stdout)";
    let mut python = Command::new("/usr/bin/python3");
    let python =
        python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut reads = python.spawn().context("start python3")?;
    // The program reads all before it writes.
    reads.stdin.take().context("its standard input")?.write_all(yaml.as_bytes())?;
    let read = reads.wait_with_output()?;
    if !read.status.success() {
        bail!("error: error parsing: {}", String::from_utf8_lossy(&read.stderr));
    }
    Ok(serde_json::from_slice(&read.stdout)?)
}

fn not_found(name: &str) -> anyhow::Error {
    anyhow!("Error from server (NotFound): pods {name:?} not found")
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    crate::debian::succeeded(command).map(|_| ())
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

fn println(line: &str) {
    let _closed = writeln!(std::io::stdout(), "{line}");
}

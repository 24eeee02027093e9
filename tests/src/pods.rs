//! Real containers: podman with runc plays the manifests of a cluster, whose API is the stand-in [`kubectl`](crate::programs::kubectl).
//!
//! The image is built with the real recipe, without a registry, on a stand-in for GitLab's image: programs of this machine, Debian's `dumb-init`, and the
//! stand-in for `gitlab-runner`.

use std::{
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::geteuid;
use serde_json::Value as Json;

use crate::{
    debian::succeeded,
    dist,
    lab::Lab,
    poll,
    programs::kubectl::{CLUSTER, Cluster, Pod, Settings},
    terraform::{built, on_path},
};

/// The image in the examples.
pub const IMAGE: &str = "registry.example.com/gitlab-runner-grit:19.2.0";

/// The stand-in for GitLab's image.
const BASE: &str = "registry.example.com/gitlab-runner:alpine-v19.2.0";

const RECIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wrapper/packaging/container");

/// Where the wrapper of the image listens.
pub const ADDRESS: &str = "unix:///run/grit-wrapper/own/wrapper.sock";

/// A limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// The programs of the base image.
const PROGRAMS: [&str; 19] = [
    "bash",
    "sh",
    "cat",
    "chmod",
    "cmp",
    "cp",
    "dumb-init",
    "env",
    "grep",
    "id",
    "kill",
    "ls",
    "mkdir",
    "pgrep",
    "rm",
    "setsid",
    "sleep",
    "touch",
    "true",
];

/// As in GitLab's image, without the bundle of certificates.
const ENTRYPOINT: &str = r#"#!/bin/bash
CA_CERTIFICATES_PATH=${CA_CERTIFICATES_PATH:-/etc/gitlab-runner/certs/ca.crt}
if [ -f "$CA_CERTIFICATES_PATH" ]; then
  cp "$CA_CERTIFICATES_PATH" /usr/local/share/ca-certificates/ca.crt
fi
exec gitlab-runner "$@"
"#;

/// A node with the image, and a cluster whose pods run there. Dropping it ends all containers.
#[derive(Debug)]
pub struct Node {
    folder: tempfile::TempDir,
    cluster: Cluster,
}

impl Node {
    /// A node whose runners take jobs from this lab. The error names what is missing.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            bail!("only root may start containers");
        }
        for program in ["podman", "runc", "dumb-init", "strip", "ldd", "tar"] {
            if on_path(program).is_none() {
                bail!("there is no {program} on PATH");
            }
        }
        // A short path: the paths of sockets are limited.
        let folder = tempfile::Builder::new().prefix("pods-").tempdir()?;
        let root = folder.path();
        // Other users read the volumes.
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
        let limits = "[containers]\ndefault_ulimits = [\"nofile=10000:10000\", \"nproc=2000:2000\"]\nnetns = \"host\"\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"file\"\n";
        fs::write(root.join("containers.conf"), limits)?;
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/storage\"\nrunroot = \"{0}/run\"\n",
            root.display()
        );
        fs::write(root.join("storage.conf"), storage)?;
        fs::create_dir(root.join("bin"))?;
        symlink(built("kubectl-stand-in")?, root.join("bin/kubectl"))?;
        let node = Self { cluster: Cluster::of(root)?, folder };
        node.build_images(&lab.queue().url())?;
        succeeded(node.podman().args(["run", "--rm", "--entrypoint", "true", IMAGE]))
            .context("this machine cannot start containers")?;
        Ok(node)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The directory with the program `kubectl`, for PATH.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.path().join("bin")
    }

    /// The environment variable that `kubectl` needs, and its value.
    #[must_use]
    pub fn cluster(&self) -> (&'static str, &Path) {
        (CLUSTER, self.path())
    }

    /// The faults of the cluster from now on.
    pub fn set(&self, settings: &Settings) -> anyhow::Result<()> {
        let fresh = self.path().join("settings.new");
        fs::write(&fresh, serde_json::to_vec(settings)?)?;
        Ok(fs::rename(fresh, self.path().join("settings.json"))?)
    }

    fn build_images(&self, lab: &str) -> anyhow::Result<()> {
        let root = self.path().join("base");
        base_image(&root, lab)?;
        let files =
            Command::new("tar").arg("-C").arg(&root).args(["-c", "."]).stdout(Stdio::piped()).spawn()?;
        let mut import = self.podman();
        import.arg("import");
        for change in [
            "ENTRYPOINT [\"/usr/bin/dumb-init\", \"/entrypoint\"]",
            "CMD [\"run\", \"--user=gitlab-runner\", \"--working-directory=/home/gitlab-runner\"]",
            "STOPSIGNAL SIGQUIT",
        ] {
            import.args(["--change", change]);
        }
        import.args(["--quiet", "-", BASE]).stdin(files.stdout.context("the output of tar")?);
        succeeded(&mut import)?;
        fs::remove_dir_all(&root)?;

        let context = self.path().join("context");
        fs::create_dir(&context)?;
        succeeded(&mut dist::part("1.0.0", &context, "tar")?)?;
        for file in ["Containerfile", "entrypoint"] {
            fs::copy(Path::new(RECIPE).join(file), context.join(file))?;
        }
        let architecture = dist::PLATFORM.trim_start_matches("linux_");
        let arguments = [
            format!("RUNNER_IMAGE={BASE}"),
            "VERSION=1.0.0".to_owned(),
            format!("TARGETARCH={architecture}"),
        ];
        let mut build = self.podman();
        build.args(["build", "--quiet", "--tag", IMAGE]);
        for argument in &arguments {
            build.args(["--build-arg", argument]);
        }
        succeeded(build.arg(&context))?;
        Ok(())
    }

    /// A command of podman.
    #[must_use]
    pub fn podman(&self) -> Command {
        self.cluster.podman()
    }

    /// Runs `kubectl` with these arguments, which must succeed.
    #[track_caller]
    pub fn kubectl(&self, words: &[&str]) -> String {
        self.try_kubectl(words).unwrap_or_else(|error| self.fail(&format!("{error:#}")))
    }

    /// Runs `kubectl` with these arguments.
    pub fn try_kubectl(&self, words: &[&str]) -> anyhow::Result<String> {
        let (name, value) = self.cluster();
        let mut kubectl = Command::new(self.programs().join("kubectl"));
        succeeded(kubectl.args(words).env(name, value).stdin(Stdio::null()))
    }

    /// Applies a manifest.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        let file = self.path().join("manifest.yaml");
        fs::write(&file, manifest).unwrap_or_else(|error| self.fail(&error.to_string()));
        self.kubectl(&["apply", "--filename", file.to_str().unwrap_or_default()]);
    }

    /// The pods that exist.
    #[track_caller]
    pub fn pods(&self) -> Vec<Pod> {
        self.cluster.pods().unwrap_or_else(|error| self.fail(&format!("{error:#}")))
    }

    /// The only pod of this owner or with this name, as soon as it exists.
    #[track_caller]
    pub fn pod(&self, name: &str) -> Pod {
        poll::until(name, LIMIT, || {
            let pods = self.pods();
            pods.iter().find(|pod| pod.name == name || pod.owner == name).cloned().ok_or(pods)
        })
    }

    /// What the wrapper of the pod reports.
    pub fn status(&self, pod: &Pod) -> anyhow::Result<Json> {
        let words = ["grit-wrapper", "status", "--json"];
        Ok(serde_json::from_str(&succeeded(self.podman().args(["exec", &pod.container()]).args(words))?)?)
    }

    /// Waits until the health level of the pod's runner is this one.
    #[track_caller]
    pub fn wait_level(&self, pod: &Pod, level: &str) {
        poll::until(level, LIMIT, || match self.status(pod) {
            Ok(status) if status["health"]["level"] == level => Ok(()),
            other => Err((other, self.log(&pod.container()))),
        });
    }

    /// Waits until the runner of the pod has this state, and returns the status.
    #[track_caller]
    pub fn wait_state(&self, pod: &Pod, state: &str) -> Json {
        poll::until(state, LIMIT, || match self.status(pod) {
            Ok(status) if status["state"] == state => Ok(status),
            other => Err((other, self.log(&pod.container()))),
        })
    }

    /// The result of an `httpGet` probe of the pod's first container, with the body; `None` without an answer.
    #[must_use]
    pub fn probe(&self, pod: &Pod, name: &str) -> Option<(u16, String)> {
        let get = &pod.spec["containers"][0][name]["httpGet"];
        http(&pod.address, get["path"].as_str()?).ok()
    }

    /// The log of a container, also of one that was deleted.
    #[must_use]
    pub fn log(&self, container: &str) -> String {
        if let Ok(saved) = fs::read_to_string(self.path().join("logs").join(container)) {
            return saved;
        }
        match self.podman().args(["logs", container]).output() {
            Ok(output) => crate::debian::both(&output),
            Err(error) => error.to_string(),
        }
    }

    /// The events of the cluster so far, as moments in seconds and texts.
    #[must_use]
    pub fn events(&self) -> Vec<(f64, String)> {
        let text = fs::read_to_string(self.path().join("events")).unwrap_or_default();
        let events = text.lines().filter_map(|line| line.split_once(' '));
        events.filter_map(|(at, what)| Some((at.parse().ok()?, what.to_owned()))).collect()
    }

    #[track_caller]
    #[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
    fn fail(&self, why: &str) -> ! {
        let logs: Vec<_> =
            self.cluster.pods().unwrap_or_default().iter().map(|pod| self.log(&pod.container())).collect();
        panic!("{why}\n{:#?}\n{}", self.events(), logs.join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing can be done about a failure. A deletion of the cluster may still be in progress, and hold files: it is waited for.
        for _ in 0..50 {
            for words in [&["pod", "rm"][..], &["rm"]] {
                let _ = self.podman().args(words).args(["--all", "--force", "--time", "0"]).output();
            }
            for mount in ["storage/vfs", "storage"] {
                let _ = Command::new("umount").arg("--recursive").arg(self.path().join(mount)).output();
            }
            if fs::remove_dir_all(self.path()).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Sends a GET request. Returns status and body.
pub fn http(address: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the head")?;
    Ok((head.split(' ').nth(1).context("no status")?.parse()?, body.to_owned()))
}

/// The files of a stand-in for GitLab's image.
fn base_image(root: &Path, lab: &str) -> anyhow::Result<()> {
    for folder in [
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "usr/local/share/ca-certificates",
        "etc/gitlab-runner",
        "tmp",
        "run",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["proc", "dev", "sys", "root", "home", "home/gitlab-runner"] {
        fs::create_dir(root.join(folder))?;
    }
    for folder in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{folder}"), root.join(folder))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    let home = root.join("home/gitlab-runner");
    chown(&home, Some(100), Some(0))?;
    fs::set_permissions(&home, Permissions::from_mode(0o770))?;
    for program in PROGRAMS {
        add_program(root, &on_path(program).with_context(|| format!("there is no {program}"))?, program)?;
    }
    let runner = root.join("runner-stand-in");
    succeeded(
        Command::new("strip").args(["--strip-unneeded", "-o"]).arg(&runner).arg(built("runner-stand-in")?),
    )?;
    add_program(root, &runner, "runner-stand-in")?;
    fs::remove_file(runner)?;
    // The wrapper of a debug build needs these, too.
    add_libraries(root, &built("grit-wrapper")?)?;
    // GitLab Runner writes a random id; a failure is only a warning.
    let gitlab_runner = format!(
        "#!/bin/sh\nconfig=${{CONFIG_FILE:-/etc/gitlab-runner/config.toml}}\nid=${{config%/*}}/.runner_system_id\n\
         [ -e \"$id\" ] || {{ echo \"${{POD_NAME:-container}}\" >\"$id\"; }} 2>/dev/null\n\
         case $1 in\n    run) exec runner-stand-in \"$@\" --lab {lab} ;;\n    *) echo \"gitlab-runner $*\" ;;\nesac\n"
    );
    for (file, content) in [("usr/bin/gitlab-runner", gitlab_runner.as_str()), ("entrypoint", ENTRYPOINT)] {
        let path = root.join(file);
        fs::write(&path, content)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let users = "root:x:0:0::/root:/bin/sh\ngitlab-runner:x:100:65533::/home/gitlab-runner:/bin/sh\n";
    fs::write(root.join("etc/passwd"), users)?;
    fs::write(root.join("etc/group"), "root:x:0:\ngitlab-runner:x:65533:\n")?;
    Ok(())
}

fn add_program(root: &Path, program: &Path, name: &str) -> anyhow::Result<()> {
    fs::copy(fs::canonicalize(program)?, root.join("usr/bin").join(name))?;
    add_libraries(root, program)
}

fn add_libraries(root: &Path, program: &Path) -> anyhow::Result<()> {
    let listed = Command::new("ldd").arg(program).output()?;
    // A static program has none.
    for library in
        String::from_utf8_lossy(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        let path = root.join(library.trim_start_matches('/'));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(fs::canonicalize(library)?, path)?;
    }
    Ok(())
}

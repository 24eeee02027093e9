//! The documented set-ups of the deploy user, with a real sshd: which requests it grants besides a connection to the wrapper.

use crate::{
    fixture::{Fixture, soon},
    grit_wrapper::GritWrapper,
    stub::Wrapper,
};
use grit_testkit::not_covered;
use grit_tests::{
    cloud_init, poll,
    provider_client::{Connector, SshOptions, StrategyOptions, Target},
    ssh_server::KeyPair,
    sshd::{Agent, ClientKey, Sshd, free_address, username},
    terraform::built,
};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

const FORWARDING: &str = include_str!("../../../wrapper/packaging/sshd/deploy-forwarding.conf");
const DIAL_STDIO: &str = include_str!("../../../wrapper/packaging/sshd/deploy-dial-stdio.conf");

const LIMIT: Duration = Duration::from_secs(60);

/// What the targets of forwarded connections send.
const REACHED: &str = "reached";

/// Whether the server grants a request of a client.
type Request = fn(&Host) -> bool;

const REQUESTS: [(&str, Request); 13] = [
    ("-L to a port", |host| {
        let local = host.path("l-port");
        host.forwards(
            &["-L", &format!("{}:{}", local.display(), host.port)],
            || UnixStream::connect(&local),
            b"",
        )
    }),
    ("-L to a socket", |host| {
        let local = host.path("l-socket");
        let forward = format!("{}:{}", local.display(), host.path("target").display());
        host.forwards(&["-L", &forward], || UnixStream::connect(&local), b"")
    }),
    ("-D", |host| {
        let local = free_address().unwrap();
        let SocketAddr::V4(to) = host.port else { panic!("{}", host.port) };
        let [high, low] = to.port().to_be_bytes();
        let [a, b, c, d] = to.ip().octets();
        // CONNECT of SOCKS 4.
        host.forwards(
            &["-D", &local.to_string()],
            || TcpStream::connect(local),
            &[4, 1, high, low, a, b, c, d, 0],
        )
    }),
    ("-W", |host| host.output(&["-W", &host.port.to_string(), ""]).0.contains(REACHED)),
    ("-R on a port", |host| {
        host.stays_connected(&["-R", "127.0.0.1:0:127.0.0.1:1"], |stderr| stderr.contains("Allocated port"))
    }),
    ("-R on a socket", |host| {
        let socket = host.path("r-socket");
        host.stays_connected(&["-R", &format!("{}:127.0.0.1:1", socket.display())], |_| socket.exists())
    }),
    ("-w", |host| {
        host.stays_connected(&["-w", "any"], |_| {
            host.sshd_log().contains("Tunnel forwarding using interface")
        })
    }),
    ("-A", |host| {
        host.output(&["-A", "true"]);
        poll::until("the server answers the request for the agent", LIMIT, || {
            let log = host.sshd_log();
            match (log.contains("[auth socket]"), log.contains("agent forwarding disabled")) {
                (false, false) => Err(log),
                (granted, _) => Ok(granted),
            }
        })
    }),
    ("-X", |host| !host.output(&["-Y", "true"]).1.contains("X11 forwarding request failed")),
    ("a terminal", |host| !host.output(&["-tt", "true"]).1.contains("PTY allocation request failed")),
    ("a command", |host| host.output(&["-T", "echo reached"]).0.contains(REACHED)),
    ("a shell", |host| {
        let mut shell = host.ssh(&["-T", ""]);
        let mut shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // The server may have closed the session.
        let _ = shell.stdin.take().unwrap().write_all(b"echo reached\n");
        String::from_utf8_lossy(&shell.wait_with_output().unwrap().stdout).contains(REACHED)
    }),
    ("SFTP", |host| {
        let mut sftp = host.ssh(&["-s", "sftp"]);
        let mut sftp =
            Client(sftp.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        // SSH_FXP_INIT, version 3; the answer is SSH_FXP_VERSION.
        let _ = sftp.0.stdin.as_ref().unwrap().write_all(&[0, 0, 0, 5, 1, 0, 0, 0, 3]);
        let mut answer = [0; 5];
        let is_answered = sftp.0.stdout.take().unwrap().read_exact(&mut answer).is_ok();
        is_answered && answer[4] == 2
    }),
];

/// A server that permits all requests except those that a set-up denies, and a wrapper on the socket of the set-up.
struct Host {
    fixture: Fixture,
    wrapper: GritWrapper,
    agent: Agent,
    /// The target of forwarded connections to a port.
    port: SocketAddr,
    /// The length of the server's log before the current request.
    logged: usize,
}

impl Host {
    /// With a part of sshd_config, and a line of authorized_keys.
    async fn start(config: &str, line: impl FnOnce(&str) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = ClientKey::generate(dir.path(), "client", "ed25519", "").unwrap();
        let socket = dir.path().join("deploy.sock").display().to_string();
        let program = built("grit-wrapper").unwrap().display().to_string();
        let here = |text: &str| {
            text.replace("/run/grit-wrapper/gitlab-runner.service.sock", &socket)
                .replace("/usr/bin/grit-wrapper", &program)
                .replace("\"grit-wrapper", &format!("\"{program}"))
                .replace("Match User deploy", &format!("Match User {}", username()))
        };
        let included = dir.path().join("deploy.conf");
        fs::write(&included, here(config)).unwrap();
        let sshd = Sshd::builder()
            .authorized_line(here(&line(&key.public)))
            .config(format!("Include {}", included.display()))
            .config("LogLevel DEBUG1")
            .config("Subsystem sftp internal-sftp")
            .config("PermitTunnel yes")
            .config("X11Forwarding yes")
            // Without a change of the user's files.
            .config("XAuthLocation /bin/true")
            .start()
            .unwrap();
        let wrapper = GritWrapper::start(format!("unix://{socket}"));
        let agent = Agent::start(dir.path()).unwrap();
        agent.add(&key).unwrap();
        let known = dir.path().join("known");
        fs::write(known, sshd.known_hosts()).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        let target = UnixListener::bind(dir.path().join("target")).unwrap();
        // The threads end with the process.
        std::thread::spawn(move || port.incoming().for_each(|stream| greet(stream.unwrap())));
        std::thread::spawn(move || target.incoming().for_each(|stream| greet(stream.unwrap())));
        let stub = Wrapper::unix(&dir.path().join("stub.sock"));
        let fixture = Fixture { sshd, wrapper: stub, key, dir };
        Self { fixture, wrapper, agent, port: address, logged: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.dir.path().join(name)
    }

    /// The server's log since the begin of the current request.
    fn sshd_log(&self) -> String {
        self.fixture.sshd.log().split_off(self.logged)
    }

    /// The last argument is the command, or empty.
    fn ssh(&self, arguments: &[&str]) -> Command {
        let address = self.fixture.sshd.address();
        let mut command = Command::new("ssh");
        command
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o"])
            .arg(format!("UserKnownHostsFile={}", self.path("known").display()))
            .args(["-p", &address.port().to_string(), "-l", &self.fixture.sshd.username()])
            .env("SSH_AUTH_SOCK", self.agent.socket())
            .env("DISPLAY", ":99")
            .args(&arguments[..arguments.len() - 1])
            .arg(address.ip().to_string())
            .args(arguments.last().filter(|last| !last.is_empty()))
            .stdin(Stdio::null());
        command
    }

    /// Standard output and standard error.
    fn output(&self, arguments: &[&str]) -> (String, String) {
        let Output { stdout, stderr, .. } = self.ssh(arguments).output().unwrap();
        (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
    }

    /// A client without a session, and the file of its standard error.
    fn client(&self, arguments: &[&str]) -> (Client, PathBuf) {
        let stderr = self.path("stderr");
        let mut command = self.ssh(&[&["-N"], arguments, &[""]].concat());
        (Client(command.stderr(File::create(&stderr).unwrap()).spawn().unwrap()), stderr)
    }

    /// Whether a connection to the client's listener reaches the target.
    fn forwards<S: Stream>(
        &self,
        arguments: &[&str],
        connect: impl Fn() -> std::io::Result<S>,
        greeting: &[u8],
    ) -> bool {
        let (mut client, stderr) = self.client(arguments);
        let mut stream = poll::until("the client listens", LIMIT, || {
            assert_eq!(client.0.try_wait().unwrap(), None, "{}", fs::read_to_string(&stderr).unwrap());
            connect()
        });
        let mut answer = Vec::new();
        // A refused connection may be reset.
        let _ = stream.write_all(greeting).and_then(|()| stream.read_to_end(&mut answer));
        answer.ends_with(REACHED.as_bytes())
    }

    /// Whether the server grants the request of a client, which exits if the server refuses it.
    fn stays_connected(&self, arguments: &[&str], is_granted: impl Fn(&str) -> bool) -> bool {
        let (mut client, stderr) = self.client(arguments);
        poll::until("the server answers the request", LIMIT, || {
            let stderr = fs::read_to_string(&stderr).unwrap();
            match client.0.try_wait().unwrap() {
                _ if is_granted(&stderr) => Ok(true),
                Some(_) if stderr.contains("forwarding failed") || stderr.contains("open failed") => {
                    Ok(false)
                }
                other => Err((other, stderr)),
            }
        })
    }

    /// The names of the requests that the server grants.
    fn granted(&mut self) -> Vec<&'static str> {
        let mut granted = Vec::new();
        for (name, request) in REQUESTS {
            if name == "-w" && File::options().read(true).write(true).open("/dev/net/tun").is_err() {
                not_covered(
                    "tunnels of the deploy user",
                    "this machine has no /dev/net/tun, or only root can open it",
                );
                continue;
            }
            self.logged = self.fixture.sshd.log().len();
            if request(self) {
                granted.push(name);
            }
        }
        granted
    }

    fn target(&self) -> Target {
        Target { wrapper_address: self.wrapper.address.parse().unwrap(), ..self.fixture.target() }
    }

    async fn connects(&self, options: SshOptions) {
        let client = Connector::new(options).client(self.target());
        let connected = async {
            while let Err(error) = client.check_status().await {
                assert!(error.retryable(), "{}", self.fixture.message(&error));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon(connected).await;
    }

    /// Connects through the command that the key or the user runs.
    async fn connects_through_command(&self) {
        let key = self.fixture.key.path.display().to_string();
        let ssh = self.ssh(&["-T", "echo reached"]);
        let words = ssh.get_args().map(|word| word.to_str().unwrap().to_owned());
        let command = ["ssh".to_owned(), "-i".to_owned(), key].into_iter().chain(words).collect();
        let strategy = StrategyOptions::SshCommand(command);
        self.connects(SshOptions { strategy, ..SshOptions::default() }).await;
        // The direct connection method needs forwarding.
        let direct = Connector::new(self.fixture.options()).client(self.target());
        soon(direct.check_status()).await.unwrap_err();
    }
}

/// A client of SSH, which ends with the value.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn greet(mut stream: impl Write) {
    // The peer may have disconnected.
    let _ = stream.write_all(REACHED.as_bytes());
}

/// The line of `authorized_keys` that limits a key to one socket, as in the security guide.
pub(crate) fn confined(socket: &str, key: &str) -> String {
    format!("restrict,port-forwarding,command=\"/bin/false\",permitopen=\"[{socket}]:*\" {key}")
}

/// The same for a key that can only run one program.
pub(crate) fn confined_to_a_program(socket: &str, key: &str) -> String {
    format!("restrict,command=\"grit-wrapper dial-stdio --address unix://{socket}\" {key}")
}

const SOCKET: &str = "/run/grit-wrapper/gitlab-runner.service.sock";

/// The other tests would pass if a client could not make a request at all.
#[tokio::test]
async fn unrestricted_key_is_granted_every_request() {
    let mut host = Host::start("", str::to_owned).await;
    let all = REQUESTS.map(|(name, _)| name);
    assert_eq!(host.granted(), all, "{}", host.fixture.sshd.log());
}

#[tokio::test]
async fn forwarding_user_reaches_only_the_wrapper() {
    let mut host = Host::start(FORWARDING, str::to_owned).await;
    host.connects(host.fixture.options()).await;
    assert_eq!(host.granted(), [""; 0], "{}", host.fixture.sshd.log());
}

#[tokio::test]
async fn dial_stdio_user_reaches_only_the_wrapper() {
    let mut host = Host::start(DIAL_STDIO, str::to_owned).await;
    host.connects_through_command().await;
    assert_eq!(host.granted(), [""; 0], "{}", host.fixture.sshd.log());
}

#[tokio::test]
async fn user_of_cloud_init_module_reaches_only_the_wrapper() {
    let key = KeyPair::generate().unwrap();
    let document = cloud_init::document(&key, &json!({ "deploy_public_keys": ["ssh-ed25519 KEY"] })).unwrap();
    let files = document["write_files"].as_array().unwrap();
    let drop_in = files
        .iter()
        .find(|file| file["path"].as_str().is_some_and(|path| path.starts_with("/etc/ssh/sshd_config.d/")));
    let drop_in = drop_in.unwrap()["content"].as_str().unwrap();
    assert_eq!(drop_in, FORWARDING, "the module has an older copy of the package's file");
    let user = &document["users"][1];
    assert_eq!(user["name"], "deploy");
    let line = user["ssh_authorized_keys"][0].as_str().unwrap();
    let mut host = Host::start(drop_in, |key| line.replace("ssh-ed25519 KEY", key)).await;
    host.connects(host.fixture.options()).await;
    assert_eq!(host.granted(), [""; 0], "{}", host.fixture.sshd.log());
}

/// As the security guide says: listeners need the configuration of sshd.
#[tokio::test]
async fn key_with_permitopen_reaches_the_wrapper_and_can_listen() {
    let mut host = Host::start("PermitTunnel no", |key| confined(SOCKET, key)).await;
    host.connects(host.fixture.options()).await;
    assert_eq!(host.granted(), ["-R on a port", "-R on a socket"], "{}", host.fixture.sshd.log());
}

#[tokio::test]
async fn key_with_dial_stdio_reaches_only_the_wrapper() {
    let mut host = Host::start("PermitTunnel no", |key| confined_to_a_program(SOCKET, key)).await;
    host.connects_through_command().await;
    assert_eq!(host.granted(), [""; 0], "{}", host.fixture.sshd.log());
}

//! The files of a release, and the installation of the provider from a mirror over the network.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
};

use grit_testkit::page;
use grit_tests::{
    debian::succeeded,
    dist::{self, EPOCH, PLATFORM, REVISION},
    terraform::{Workspace, core},
};
use serde_json::{Value as Json, json};

const VERSION: &str = "1.0.0-rc.1";
const PAGE: &str = include_str!("../../../docs/releases.md");

/// The files of a directory, by name.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), fs::read(path).unwrap())).collect()
}

#[test]
fn release_is_complete_and_reproducible() {
    let first = tempfile::tempdir().unwrap();
    succeeded(&mut dist::command(VERSION, first.path()).unwrap()).unwrap();
    let files = contents(first.path());
    let (system, machine) = (PLATFORM, std::env::consts::ARCH);
    let debian = system.strip_prefix("linux_").unwrap();
    let mut expected = [
        "SHA256SUMS".to_owned(),
        format!("grit-wrapper-1.0.0-rc.1-1.{machine}.rpm"),
        format!("grit-wrapper_1.0.0-rc.1_{debian}.deb"),
        format!("grit-wrapper_{VERSION}_{system}.tar.gz"),
        format!("grit-wrapper_{VERSION}_{system}_sbom.spdx.json"),
        format!("terraform-provider-grit_{VERSION}_SHA256SUMS"),
        format!("terraform-provider-grit_{VERSION}_{system}.zip"),
        format!("terraform-provider-grit_{VERSION}_{system}_sbom.spdx.json"),
        format!("terraform-provider-grit_{VERSION}_manifest.json"),
    ];
    expected.sort();
    assert_eq!(files.keys().cloned().collect::<Vec<_>>(), expected);

    // Again in another directory, by a user with another umask and time zone.
    let second = tempfile::tempdir().unwrap();
    let out = second.path().join("other/directory");
    let command = dist::command(VERSION, &out).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    shell.env("SOURCE_DATE_EPOCH", EPOCH).env("GRIT_REVISION", REVISION).env("TZ", "Asia/Tokyo");
    succeeded(&mut shell).unwrap();
    let again = contents(&out);
    assert_eq!(files.keys().collect::<Vec<_>>(), again.keys().collect::<Vec<_>>());
    for (name, bytes) in &files {
        assert!(again[name] == *bytes, "{name} differs");
    }
    assert_checksums(first.path(), &files);
    assert_archives(first.path());
    for package in ["grit-wrapper", "terraform-provider-grit"] {
        assert_sbom(package, &files[&format!("{package}_{VERSION}_{system}_sbom.spdx.json")]);
    }
}

/// The files with checksums, and their signatures on request.
fn assert_checksums(folder: &Path, files: &BTreeMap<String, Vec<u8>>) {
    let provider = format!("terraform-provider-grit_{VERSION}");
    let listed = |name: &str| -> Vec<String> {
        let mut check = Command::new("sha256sum");
        succeeded(check.args(["--check", "--strict", name]).current_dir(folder)).unwrap();
        let text = String::from_utf8(files[name].clone()).unwrap();
        text.lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect()
    };
    assert_eq!(listed("SHA256SUMS").len(), files.len() - 1);
    let of_registry = format!("{provider}_SHA256SUMS");
    let (zip, manifest) = (format!("{provider}_{PLATFORM}.zip"), format!("{provider}_manifest.json"));
    assert_eq!(listed(&of_registry), [zip, manifest.clone()]);
    let manifest: Json = serde_json::from_slice(&files[&manifest]).unwrap();
    assert_eq!(manifest, json!({ "version": 1, "metadata": { "protocol_versions": ["6.0"] } }));

    // A short path, because GnuPG's agent listens on a socket in it.
    let home = tempfile::Builder::new().prefix("gpg-").tempdir_in("/tmp").unwrap();
    let gpg = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        succeeded(command.env("GNUPGHOME", home.path()).args(words).current_dir(folder)).unwrap();
    };
    for (user, algorithm) in [("other@example.com", "ed25519"), ("release@example.com", "rsa2048")] {
        gpg("gpg", &["--batch", "--passphrase", "", "--quick-generate-key", user, algorithm, "sign"]);
    }
    // The machine that signs has the files of all platforms, without the checksums of each.
    let work = tempfile::tempdir().unwrap();
    symlink(folder, work.path().join("dist")).unwrap();
    for name in ["SHA256SUMS", &of_registry] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let sign = |user: &str| {
        let mut export = Command::new("gpg");
        export.args(["--batch", "--armor", "--export-secret-keys", user]).env("GNUPGHOME", home.path());
        let mut sign = Command::new("bash");
        sign.args(["-e", "-c", &signing_step()]).current_dir(work.path()).env("GNUPGHOME", home.path());
        sign.env("SIGNING_KEY", succeeded(&mut export).unwrap()).env("SIGNING_KEY_FINGERPRINT", user);
        succeeded(sign.env("GITHUB_REF_NAME", format!("v{VERSION}")))
    };
    let refused = sign("other@example.com").unwrap_err().to_string();
    assert!(refused.contains("the key has algorithm 22, not RSA or DSA"), "{refused}");
    sign("release@example.com").unwrap();
    for name in ["SHA256SUMS", of_registry.as_str()] {
        gpg("gpg", &["--batch", "--verify", &format!("{name}.sig"), name]);
        assert!(
            fs::read(folder.join(name)).unwrap() == files[name],
            "{name}: other checksums of the same files"
        );
    }
    for user in ["other", "release"] {
        let (user, file) = (format!("{user}@example.com"), home.path().join(format!("{user}.asc")));
        gpg("gpg", &["--batch", "--armor", "--output", file.to_str().unwrap(), "--export", &user]);
    }
    gpg("gpgconf", &["--kill", "all"]);
    assert_verified_before_publication(folder, home.path());
}

/// The commands of the workflow that make and sign the checksums.
fn signing_step() -> String {
    const WORKFLOW: &str = include_str!("../../../.github/workflows/release.yml");
    let (_, step) = WORKFLOW.split_once("- name: Create and sign the checksums\n").unwrap();
    let (_, commands) = step.split_once("        run: |\n").unwrap();
    let lines = commands.lines().map_while(|line| line.strip_prefix("          "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The script of the release workflow accepts these files, and refuses each incomplete or changed release.
fn assert_verified_before_publication(folder: &Path, keys: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/verify-release.sh");
    let verify = |files: &Path, key: &str, platform: &str| {
        let mut verify = Command::new(&script);
        verify.arg(files).arg(VERSION).arg(keys.join(format!("{key}.asc"))).arg(platform);
        succeeded(&mut verify)
    };
    let printed = verify(folder, "release", PLATFORM).unwrap();
    assert!(printed.contains(" are complete and signed"), "{printed}");
    let refused = |files: &Path, key: &str, platform: &str, reason: &str| {
        let error = verify(files, key, platform).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    refused(folder, "other", PLATFORM, "SHA256SUMS has no signature of the key");
    refused(folder, "release", "darwin_arm64", "_SHA256SUMS does not list terraform-provider-grit_");
    let zip = format!("terraform-provider-grit_{VERSION}_{PLATFORM}.zip");
    let change = |change: &dyn Fn(&Path)| {
        let copy = tempfile::tempdir().unwrap();
        for (name, bytes) in contents(folder) {
            fs::write(copy.path().join(name), bytes).unwrap();
        }
        change(copy.path());
        copy
    };
    let changed = change(&|copy| fs::write(copy.join(&zip), "other bytes").unwrap());
    refused(changed.path(), "release", PLATFORM, "a file differs from SHA256SUMS");
    let absent = change(&|copy| fs::remove_file(copy.join(&zip)).unwrap());
    refused(absent.path(), "release", PLATFORM, "a file differs from SHA256SUMS");
    let extra = change(&|copy| fs::write(copy.join("extra.zip"), "").unwrap());
    refused(extra.path(), "release", PLATFORM, "SHA256SUMS does not list extra.zip");
}

/// Other programs can read the archives, and the programs in them run.
fn assert_archives(folder: &Path) {
    let unpacked = tempfile::tempdir().unwrap();
    let zip = folder.join(format!("terraform-provider-grit_{VERSION}_{PLATFORM}.zip"));
    let script = "import sys, zipfile\n\
                  archive = zipfile.ZipFile(sys.argv[1])\n\
                  assert archive.testzip() is None\n\
                  archive.extractall(sys.argv[2])\n\
                  for it in archive.infolist(): print(it.filename, oct(it.external_attr >> 16), *it.date_time)";
    let mut python = Command::new("python3");
    let listing = succeeded(python.args(["-c", script]).arg(&zip).arg(unpacked.path())).unwrap();
    let program = format!("terraform-provider-grit_v{VERSION}");
    let time = "2023 11 14 22 13 20";
    assert_eq!(listing, format!("LICENSE 0o100644 {time}\n{program} 0o100755 {time}\n"));
    let program = unpacked.path().join(program);
    // Python ignores modes.
    succeeded(Command::new("chmod").arg("755").arg(&program)).unwrap();
    let printed = succeeded(Command::new(&program).arg("--version")).unwrap();
    assert!(printed.starts_with(concat!("terraform-provider-grit ", env!("CARGO_PKG_VERSION"))), "{printed}");

    let name = format!("grit-wrapper_{VERSION}_{PLATFORM}");
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    let listing =
        succeeded(tar.args(["--utc", "--full-time", "--verbose", "--list", "--file"]).arg(&archive)).unwrap();
    for line in listing.lines() {
        assert!(line.contains(" root/root ") && line.contains(" 2023-11-14 22:13:20 "), "{line}");
    }
    let mut tar = Command::new("tar");
    succeeded(tar.args(["--extract", "--file"]).arg(&archive).current_dir(unpacked.path())).unwrap();
    let files = unpacked.path().join(&name);
    let printed = succeeded(Command::new(files.join("grit-wrapper")).arg("--version")).unwrap();
    assert!(printed.starts_with(concat!("grit-wrapper ", env!("CARGO_PKG_VERSION"))), "{printed}");
    for path in
        ["LICENSE", "completions/_grit-wrapper", "man/grit-wrapper-run.8", "systemd/grit-wrapper.service"]
    {
        assert!(files.join(path).is_file(), "{path}");
    }
    let page = fs::read_to_string(files.join("man/grit-wrapper.8")).unwrap();
    assert!(page.contains(&format!("grit-wrapper {VERSION}")), "{page}");
}

/// Each crate has a licence and the checksum of Cargo.lock, and each is a dependency of another one.
fn assert_sbom(package: &str, bytes: &[u8]) {
    let sbom: Json = serde_json::from_slice(bytes).unwrap();
    assert_eq!(sbom["spdxVersion"], "SPDX-2.3");
    assert_eq!(sbom["creationInfo"]["created"], "2023-11-14T22:13:20Z");
    let lock = include_str!("../../../Cargo.lock");
    let mut names = BTreeMap::new();
    for entry in sbom["packages"].as_array().unwrap() {
        let (name, version) = (entry["name"].as_str().unwrap(), entry["versionInfo"].as_str().unwrap());
        let header = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        let (_, block) =
            lock.split_once(&header).unwrap_or_else(|| panic!("Cargo.lock has no {name} {version}"));
        let block = block.split("\n\n").next().unwrap();
        match entry["checksums"][0]["checksumValue"].as_str() {
            Some(sum) => assert!(block.contains(&format!("checksum = \"{sum}\"")), "{name}"),
            None => assert!(!block.contains("checksum"), "{name}"),
        }
        assert_ne!(entry["licenseDeclared"], "", "{name}");
        names.insert(entry["SPDXID"].as_str().unwrap(), name);
    }
    assert!(names.len() > 50 && names.values().any(|name| *name == "tokio"), "{names:?}");
    let relations = sbom["relationships"].as_array().unwrap();
    let (describes, depends): (Vec<_>, Vec<_>) =
        relations.iter().partition(|relation| relation["relationshipType"] == "DESCRIBES");
    let root = describes[0]["relatedSpdxElement"].as_str().unwrap();
    assert_eq!((describes.len(), names[root]), (1, package));
    for id in names.keys().filter(|id| **id != root) {
        assert!(
            depends.iter().any(|relation| relation["relatedSpdxElement"] == **id),
            "nothing depends on {id}"
        );
    }
}

/// A static file server with TLS, in Python.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SERVER: &str = "
import functools, http.server, ssl, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
";

#[test]
fn network_mirror_over_https_serves_provider() {
    let folder = tempfile::tempdir().unwrap();
    let (out, mirror) = (folder.path().join("out"), folder.path().join("mirror"));
    for version in ["0.1.0", "0.2.0"] {
        let mut command = dist::part(version, &out, "provider").unwrap();
        succeeded(command.arg("--mirror").arg(&mirror)).unwrap();
    }

    // A certificate for localhost, which is its own authority.
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (authority, identity) = (folder.path().join("authority.pem"), folder.path().join("identity.pem"));
    fs::write(&authority, certified.cert.pem()).unwrap();
    fs::write(&identity, certified.signing_key.serialize_pem() + &certified.cert.pem()).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", SERVER]).arg(&mirror).arg(&identity).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(python.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();

    let mut workspace = Workspace::new(&[]).unwrap().env("SSL_CERT_FILE", &authority);
    let settings = workspace.path().join("mirror.rc");
    let url = format!("https://localhost:{}/", port.trim());
    let example = page::block(PAGE, "hcl");
    let rc = example.replace("https://mirror.example.com/providers/", &url);
    assert_ne!(rc, example);
    fs::write(&settings, rc.replace("registry.terraform.io", core().registry())).unwrap();
    workspace.set_env("TF_CLI_CONFIG_FILE", settings);
    for (constraint, expected) in [("0.1.0", "0.1.0"), (">= 0.1.0", "0.2.0")] {
        let grit = json!({ "source": "runner-tools/grit", "version": constraint });
        let main =
            json!({ "terraform": { "required_providers": { "grit": grit } }, "provider": { "grit": {} } });
        workspace.write("main.tf.json", &main.to_string()).unwrap();
        workspace.run(["init", "-no-color", "-upgrade"]).unwrap().succeeded();
        let lock = fs::read_to_string(workspace.root().join(".terraform.lock.hcl")).unwrap();
        assert!(lock.contains(&format!("\"{expected}\"\n")) && lock.contains("\"h1:"), "{lock}");
        assert_eq!(workspace.validate().unwrap().succeeded().warnings(), []);
    }

    // An archive that was changed on the server is refused.
    let name = format!("terraform-provider-grit_0.2.0_{PLATFORM}.zip");
    let provider = mirror.join(core().registry()).join("runner-tools/grit");
    fs::copy(provider.join(name.replace("0.2.0", "0.1.0")), provider.join(&name)).unwrap();
    fs::remove_dir_all(workspace.path().join("home/data")).unwrap();
    let failed = workspace.run(["init", "-no-color"]).unwrap().failed();
    assert!(failed.stderr.contains("checksum"), "{}", failed.stderr);
}

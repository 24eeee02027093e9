//! The committed code under `src/gen/` is what the `.proto` files generate.

use std::{fs, path::Path};

const SOURCES: [&str; 4] = [
    "tfplugin/tfplugin6.proto",
    "tfplugin/goplugin.proto",
    "upstream/runner_wrapper.proto",
    "wrapper/v1/wrapper.proto",
];

#[test]
fn generated_code_matches_proto_definitions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(SOURCES, [root]).unwrap();
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // An RPC that we do not implement answers "Unimplemented", which Terraform accepts for every optional one.
        .generate_default_stubs(true)
        .out_dir(fresh.path())
        .compile_fds(descriptors)
        .unwrap();

    let committed = root.join("src/gen");
    let update = std::env::var_os("GRIT_UPDATE_GENERATED").is_some();
    let mut names: Vec<_> = fs::read_dir(fresh.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    for name in &names {
        let wanted = fs::read_to_string(fresh.path().join(name)).unwrap();
        let path = committed.join(name);
        if update {
            fs::write(&path, &wanted).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "{} is stale: run `cargo xtask gen`", path.display());
    }
    for entry in fs::read_dir(&committed).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(names.contains(&name), "src/gen/{} comes from no definition", name.to_string_lossy());
    }
}

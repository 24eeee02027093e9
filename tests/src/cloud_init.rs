//! The module `examples/modules/cloud-init`, rendered by Terraform.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::{ssh_server::KeyPair, terraform::Workspace};

/// The module's user data, as the instance receives it, with these inputs over some that suit a test host.
///
/// # Errors
///
/// If Terraform or the module fails.
pub fn user_data(host_key: &KeyPair, inputs: &Json) -> anyhow::Result<String> {
    output(host_key, inputs, "user_data")
}

/// The document of the user data.
///
/// # Errors
///
/// If Terraform or the module fails.
pub fn document(host_key: &KeyPair, inputs: &Json) -> anyhow::Result<Json> {
    Ok(serde_json::from_str(&output(host_key, inputs, "document")?)?)
}

fn output(host_key: &KeyPair, inputs: &Json, name: &str) -> anyhow::Result<String> {
    let workspace = Workspace::new(&[])?;
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/modules/cloud-init").canonicalize()?;
    let mut module = json!({
        "source": source,
        "name": "blue-v1",
        "runner_token": "glrt-machine",
        "executor": "shell",
        "concurrent": 4,
        "host_key": { "private": host_key.private, "public": host_key.public.trim() },
        "deploy_public_keys": [host_key.public.trim()],
    });
    for (name, value) in inputs.as_object().into_iter().flatten() {
        module[name] = value.clone();
    }
    let main = json!({
        "module": { "this": module },
        "output": {
            "user_data": { "value": "${module.this.user_data}", "sensitive": true },
            "document": { "value": "${jsonencode(yamldecode(module.this.user_data))}", "sensitive": true },
        },
    });
    workspace.write("main.tf.json", &main.to_string())?;
    workspace.get()?.succeeded();
    workspace.apply()?.succeeded();
    Ok(workspace.run(["output", "-raw", name])?.succeeded().stdout)
}

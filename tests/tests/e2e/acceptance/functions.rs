//! Functions: each parameter with a value, another one, null, a wrong one, and an unknown one.

use std::fmt::Write as _;

use grit_tests::terraform::{Workspace, core};
use serde_json::{Value as Json, json};

const HEAD: &str =
    "terraform {\n  required_providers {\n    grit = { source = \"runner-tools/grit\" }\n  }\n}\n";

/// A parameter, and its values as Terraform expressions. `UNKNOWN` is a string that is unknown at plan.
struct Row {
    function: &'static str,
    parameter: &'static str,
    value: &'static str,
    other: &'static str,
    unknown: &'static str,
    /// The result of `value`, of `other`, and of `unknown`.
    results: [Json; 3],
    wrong: &'static [&'static str],
}

fn manager(address: &str) -> Json {
    json!({ "a": {
        "instance_name": "a", "address": address, "wrapper_address": "h:1", "username": null, "ssh_key_pem": null,
        "instance_id": null, "host_key": null,
    } })
}

fn module(address: &str) -> Json {
    json!({ "a": {
        "instance_name": "a", "address": address, "wrapper_address": "unix:///w", "username": null, "ssh_key_pem": null,
        "instance_id": "i-1", "host_key": null,
    } })
}

fn rows() -> [Row; 2] {
    [
        Row {
            function: "managers_from_grit",
            parameter: "modules",
            value: r#"{ ec2_instance_name = "a", ec2_instance_id = "i-1", ec2_public_ip = "192.0.2.1", ec2_private_ip = "10.0.0.1", ec2_runner_wrapper_socket_path = "unix:///w", ec2_ssh_key_openssh_pem = "" }"#,
            other: r#"{ ec2_instance_name = "a", ec2_instance_id = "i-1", ec2_public_ip = "192.0.2.2", ec2_private_ip = "10.0.0.1", ec2_runner_wrapper_socket_path = "unix:///w", ec2_ssh_key_openssh_pem = "" }"#,
            unknown: r#"{ ec2_instance_name = "a", ec2_instance_id = "i-1", ec2_public_ip = UNKNOWN, ec2_private_ip = "10.0.0.1", ec2_runner_wrapper_socket_path = "unix:///w", ec2_ssh_key_openssh_pem = "" }"#,
            results: [module("192.0.2.1"), module("192.0.2.2"), module("h:2")],
            wrong: &["null", "\"text\"", "{ url = \"https://gitlab.example.com\" }"],
        },
        Row {
            function: "validate_managers",
            parameter: "runner_managers",
            value: "{ a = { address = \"h\", wrapper_address = \"h:1\" } }",
            other: "{ a = { address = \"i\", wrapper_address = \"h:1\" } }",
            unknown: "{ a = { address = UNKNOWN, wrapper_address = \"h:1\" } }",
            results: [manager("h"), manager("i"), manager("h:2")],
            wrong: &[
                "null",
                "[]",
                "{ a = { address = \"h:99999\", wrapper_address = \"h:1\" } }",
                "{ a = { address = \"h\" } }",
                "{ a = { address = \"h\", wrapper_address = \"h:1\", adress = \"h\" } }",
                "{ a = { address = \"h\", wrapper_address = \"h:1\" }, b = { address = \"h\", wrapper_address = \"h:1\" } }",
            ],
        },
    ]
}

fn write(workspace: &Workspace, value: fn(&Row) -> &'static str, more: &str) {
    let mut text = format!("{HEAD}{more}");
    for row in rows() {
        let argument = value(&row).replace("UNKNOWN", "terraform_data.late.output");
        writeln!(text, "output \"{0}\" {{\n  value = provider::grit::{0}({argument})\n}}", row.function)
            .unwrap();
    }
    workspace.write("main.tf", &text).unwrap();
}

fn assert_results(workspace: &Workspace, number: usize) {
    let outputs = workspace.show(None).unwrap()["values"]["outputs"].clone();
    for row in rows() {
        assert_eq!(outputs[row.function]["value"], row.results[number], "{}", row.function);
    }
}

#[test]
fn each_parameter_is_set_changed_unknown_and_refused() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", HEAD).unwrap();
    let run = workspace.run(["providers", "schema", "-json"]).unwrap().succeeded();
    let schema: Json = serde_json::from_str(&run.stdout).unwrap();
    let functions =
        &schema["provider_schemas"][format!("{}/runner-tools/grit", core().registry())]["functions"];
    let Some(functions) = functions.as_object() else { return };
    let mut parameters = Vec::new();
    for (name, function) in functions {
        let all =
            function["parameters"].as_array().into_iter().flatten().chain(function.get("variadic_parameter"));
        parameters.extend(all.map(|it| (name.as_str(), it["name"].as_str().unwrap())));
    }
    let table = rows().map(|row| (row.function, row.parameter));
    assert_eq!(parameters, table, "add a row for each parameter");

    write(&workspace, |row| row.value, "");
    workspace.apply().unwrap().succeeded();
    assert_results(&workspace, 0);
    let plan = workspace.run(["plan", "-detailed-exitcode"]).unwrap();
    assert_eq!(plan.code, Some(0), "{}", plan.stdout);
    write(&workspace, |row| row.other, "");
    workspace.apply().unwrap().succeeded();
    assert_results(&workspace, 1);
    write(&workspace, |row| row.unknown, "resource \"terraform_data\" \"late\" {\n  input = \"h:2\"\n}\n");
    workspace.plan().unwrap().succeeded();
    let plan = workspace.show(Some("plan")).unwrap();
    for row in rows() {
        let after_unknown = &plan["output_changes"][row.function]["after_unknown"];
        assert!(after_unknown.to_string().contains("true"), "{}: {after_unknown}", row.function);
    }
    workspace.run(["apply", "-json", "plan"]).unwrap().succeeded();
    assert_results(&workspace, 2);

    // Each wrong argument in a file of its own; all are refused in one plan.
    workspace.write("main.tf", HEAD).unwrap();
    let mut wanted = Vec::new();
    for row in rows() {
        for (number, argument) in row.wrong.iter().enumerate() {
            let name = format!("{}-{number}", row.function);
            let text =
                format!("output \"{name}\" {{\n  value = provider::grit::{}({argument})\n}}\n", row.function);
            workspace.write(&format!("{name}.tf"), &text).unwrap();
            wanted.push((format!("{name}.tf"), format!("{}({argument})", row.function)));
        }
    }
    let run = workspace.run(["plan", "-json"]).unwrap().failed();
    let lines = run.stdout.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let errors: Vec<_> =
        lines.filter(|line| line["type"] == "diagnostic" && line["@level"] == "error").collect();
    let mut text = String::new();
    for (file, call) in wanted {
        let mut found =
            errors.iter().filter(|error| error["diagnostic"]["range"]["filename"] == file.as_str());
        let error = found.next().unwrap_or_else(|| panic!("accepted: {call}"));
        let detail = error["diagnostic"]["detail"].as_str().unwrap();
        // Terraform refuses null itself, in the words of its version.
        if let Some((_, of_provider)) = detail.split_once(" parameter: ")
            && detail.contains("Code: ")
        {
            writeln!(text, "# {call}\n{of_provider}\n").unwrap();
        }
    }
    insta::assert_snapshot!("wrong_arguments_of_functions", text);
}

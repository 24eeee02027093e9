//! The path of a call from Terraform to the runner, and of the receipt.

use std::fs;

use grit_testkit::svg::{DARK, LIGHT, Point, arrow, begin, frame, heading, text};

/// The machines: title, corner, size.
const MACHINES: [(&str, Point, Point); 2] = [
    ("machine that runs terraform apply", (15.0, 15.0), (800.0, 100.0)),
    ("runner manager host", (15.0, 384.0), (800.0, 112.0)),
];

/// The programs: name, corner, size.
const PROGRAMS: [(&str, Point, Point); 6] = [
    ("terraform", (40.0, 52.0), (150.0, 46.0)),
    ("terraform-provider-grit", (520.0, 52.0), (270.0, 46.0)),
    ("sshd", (40.0, 428.0), (110.0, 46.0)),
    ("grit-wrapper", (310.0, 428.0), (150.0, 46.0)),
    ("gitlab-runner", (630.0, 428.0), (160.0, 46.0)),
    ("GitLab", (520.0, 556.0), (270.0, 42.0)),
];

/// The calls between the programs: points, label, place of the label, anchor.
const CALLS: [(&[Point], &str, Point, &str); 8] = [
    (&[(190.0, 75.0), (520.0, 75.0)], "plugin protocol: gRPC, unix socket", (355.0, 68.0), "middle"),
    (&[(655.0, 98.0), (655.0, 146.0)], "gRPC over SSH, one of these connections", (647.0, 136.0), "end"),
    (&[(95.0, 344.0), (95.0, 428.0)], "", (0.0, 0.0), "start"),
    (&[(150.0, 451.0), (310.0, 451.0)], "gRPC, unix socket", (228.0, 444.0), "middle"),
    (&[(460.0, 442.0), (630.0, 442.0)], "SIGQUIT, SIGTERM", (543.0, 435.0), "middle"),
    (&[(460.0, 460.0), (630.0, 460.0)], "HTTP: metrics", (543.0, 477.0), "middle"),
    (&[(655.0, 474.0), (655.0, 556.0)], "HTTPS: job requests", (647.0, 530.0), "end"),
    (
        &[(790.0, 75.0), (845.0, 75.0), (845.0, 577.0), (790.0, 577.0)],
        "HTTPS: receipt",
        (838.0, 530.0),
        "end",
    ),
];

/// The connections, of which a deployment has one: setting, program between provider and host, owner of the SSH session with the host.
const CONNECTIONS: [(&str, Option<&str>, &str); 4] = [
    ("direct (default)", None, "SSH by the provider"),
    ("proxy_jump", Some("jump hosts"), "SSH by the provider"),
    ("proxy_command", Some("command, e.g. aws ssm"), "SSH by the provider"),
    ("ssh_command", Some("command, e.g. ssh"), "SSH by the command"),
];

fn draw() -> String {
    const ROW: f64 = 46.0;
    let mut svg = begin(
        (860.0, 616.0),
        13.0,
        "The path of a call from Terraform to GitLab Runner",
        "terraform calls the provider. The provider reaches sshd on the runner manager host directly or through proxy_jump, proxy_command or \
         ssh_command. sshd forwards the connection to the unix socket of grit-wrapper, which sends signals to gitlab-runner and reads its HTTP \
         server. gitlab-runner requests jobs from GitLab. For the receipt, the provider calls GitLab directly.",
    );
    for (name, corner, size) in MACHINES {
        frame(&mut svg, corner, size, "#f6f8fa", LIGHT);
        text(&mut svg, (corner.0 + size.0 / 2.0, corner.1 + 22.0), "middle", LIGHT, name);
    }
    frame(&mut svg, (15.0, 146.0), (800.0, 198.0), "#ffffff", LIGHT);
    for ((setting, between, owner), row) in CONNECTIONS.iter().zip([0.0, 1.0, 2.0, 3.0]) {
        let y = 176.0 + row * ROW;
        text(&mut svg, (30.0, y + 4.0), "start", DARK, setting);
        if let Some(between) = between {
            arrow(&mut svg, &[(190.0, y), (290.0, y)], DARK);
            frame(&mut svg, (290.0, y - 16.0), (190.0, 32.0), "#fdf3e7", "#d97b29");
            text(&mut svg, (385.0, y + 4.0), "middle", DARK, between);
            arrow(&mut svg, &[(480.0, y), (620.0, y)], DARK);
        } else {
            arrow(&mut svg, &[(190.0, y), (620.0, y)], DARK);
        }
        text(&mut svg, (635.0, y + 4.0), "start", DARK, owner);
    }
    for (name, corner, size) in PROGRAMS {
        frame(&mut svg, corner, size, "#eaf2f8", "#2f81b7");
        heading(&mut svg, (corner.0 + size.0 / 2.0, corner.1 + size.1 / 2.0 + 5.0), name);
    }
    for (points, label, place, anchor) in CALLS {
        arrow(&mut svg, points, DARK);
        if !label.is_empty() {
            text(&mut svg, place, anchor, DARK, label);
        }
    }
    svg + "</svg>\n"
}

#[test]
fn picture_of_call_path_is_current() {
    super::compare("call-path.svg", &draw());
}

#[test]
fn connections_of_picture_are_settings_of_provider() {
    let page = fs::read_to_string(super::path("../index.md")).unwrap();
    for (setting, _, _) in &CONNECTIONS[1..] {
        assert!(page.contains(&format!("\n- `{setting}` (")), "the provider has no setting {setting}");
    }
}

//! The children of these tests keep running after their wrapper on purpose. They must exit when a test is killed.

use std::{fs, os::unix::process::CommandExt, process::Command};

use crate::support::{Start, eventually, is_alive, misbehaving_child};

#[tokio::test]
async fn killed_test_leaves_no_child() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut test = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut child = Command::new(misbehaving_child())
        .args(["--lives-with", &test.id().to_string(), "--ignore-quit", "--ignore-term"])
        .args(["--record", &path("record"), "--grandchild", &path("grandchild")])
        .process_group(0)
        .spawn()
        .unwrap();
    eventually("the child is ready", async || {
        let record = fs::read_to_string(path("record")).unwrap_or_default();
        if record == "ready\n" { Ok(()) } else { Err(record) }
    })
    .await;
    let grandchild: u32 = fs::read_to_string(path("grandchild")).unwrap().parse().unwrap();
    assert!(is_alive(grandchild) && child.try_wait().unwrap().is_none());
    test.kill().unwrap();
    test.wait().unwrap();
    eventually("the child ends", async || child.try_wait().unwrap().ok_or(())).await;
    eventually("the grandchild ends", async || if is_alive(grandchild) { Err(()) } else { Ok(()) }).await;
}

#[tokio::test]
async fn killed_test_leaves_no_wrapper() {
    let mut test = Command::new("sleep").arg("1000").spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record").to_str().unwrap().to_owned();
    let (child, number) = (misbehaving_child().to_str().unwrap().to_owned(), test.id().to_string());
    let mut wrapper = Start::again(folder).command(&[&child, "--record", &record, "--lives-with", &number]);
    wrapper.child_ready().await;
    test.kill().unwrap();
    test.wait().unwrap();
    wrapper.ended().await;
}

//! What is reused, what heals, and what a killed run leaves.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use ramen_group::Reason;
use serde_json::json;

use crate::index::{Index, Manner};
use crate::kit::{Kit, at_work, bin_dir, uv};
use crate::pythons::wanted;
use crate::wheel::{Wheel, simple};

/// A group with one requirement, and an installer that counts its runs.
fn counted() -> (Kit, impl Fn(&Kit) -> Vec<String>) {
    let mut kit = Kit::with_tool();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    kit.requirements("alpha\n");
    let script = kit.path("counting-uv");
    let log = kit.path("uv-runs");
    let text = format!(
        "#!/bin/sh\necho \"$1 $2\" >> {}\nexec {} \"$@\"\n",
        log.display(),
        uv().display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    kit.set("RAMEN_UV", script.to_str().unwrap());
    let runs = |kit: &Kit| {
        let text = std::fs::read_to_string(kit.path("uv-runs")).unwrap_or_default();
        let _ = std::fs::remove_file(kit.path("uv-runs"));
        text.lines().map(str::to_owned).collect()
    };
    (kit, runs)
}

#[test]
fn a_code_only_push_starts_no_installer_and_reuses_the_layer() {
    let (kit, runs) = counted();
    let first = kit.deploy().ok();
    assert_eq!(runs(&kit), ["pip compile", "pip install"]);
    kit.tool(
        "more",
        "import alpha\n\ndef more():\n    return alpha.VERSION\n",
        &json!({}),
    );
    kit.golden(&[("more", json!({}), json!({"text_contains": "1.0"}))]);
    let second = kit.deploy().ok();
    assert_eq!(runs(&kit), [""; 0]);
    assert_eq!(first.report.deps, second.report.deps);
    assert_eq!(first.report.lock, second.report.lock);
}

#[test]
fn a_comment_in_the_requirements_changes_nothing_and_a_refresh_resolves_again() {
    let (kit, runs) = counted();
    let first = kit.deploy().ok();
    runs(&kit);
    kit.requirements("# a comment\nalpha   # here too\n");
    kit.deploy().ok();
    assert_eq!(runs(&kit), [""; 0]);
    // The same lock comes out: nothing is installed.
    let again = kit.deploy_with(&["--refresh"]).ok();
    assert_eq!(runs(&kit), ["pip compile"]);
    assert_eq!(first.report.deps, again.report.deps);
    // A newer version is taken only then.
    simple(&kit.wheels(), "alpha", "2.0", &[]);
    assert_eq!(kit.deploy().ok().report.lock, first.report.lock);
    let newer = kit.deploy_with(&["--refresh"]).ok();
    assert!(newer.report.lock.unwrap().starts_with("alpha==2.0"));
}

#[test]
fn two_requirement_texts_with_one_lock_share_one_layer() {
    let (kit, runs) = counted();
    let first = kit.deploy().ok();
    runs(&kit);
    kit.requirements("alpha==1.0\n");
    let second = kit.deploy().ok();
    assert_eq!(runs(&kit), ["pip compile"]);
    assert_eq!(first.report.deps, second.report.deps);
}

#[test]
fn each_python_has_requirements_of_its_own_and_all_share_the_code() {
    let mut kit = Kit::with_tool();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    kit.requirements("alpha\n");
    let pythons = wanted(&bin_dir());
    let mut layers = BTreeSet::new();
    let mut code = BTreeSet::new();
    for python in &pythons {
        kit.python.clone_from(python);
        let report = kit.deploy().ok().report;
        layers.insert(report.deps.unwrap().key);
        code.insert(report.code.unwrap().key);
    }
    assert_eq!((layers.len(), code.len()), (pythons.len(), 1));
}

#[test]
fn a_corrupt_or_lost_layer_is_built_again() {
    let (kit, runs) = counted();
    let first = kit.deploy().ok().report.deps.unwrap();
    let blob = |digest: &str| {
        kit.path("store/blobs").join(format!(
            "{}.tar.zst",
            digest.strip_prefix("sha256:").unwrap()
        ))
    };
    let path = blob(&first.digest);
    let good = std::fs::read(&path).unwrap();
    // The same length, other bytes.
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0xff;
    for (damage, bytes) in [
        ("flipped", Some(&bad[..])),
        ("cut", Some(&good[..middle])),
        ("gone", None),
    ] {
        match bytes {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        std::fs::remove_dir_all(kit.path("store/unpacked")).unwrap();
        runs(&kit);
        let healed = kit.deploy().ok().report.deps.unwrap();
        assert_eq!(
            runs(&kit),
            ["pip install"],
            "{damage:?}: no new resolution is needed"
        );
        assert_eq!(healed, first, "the same bytes again");
    }
}

#[test]
fn a_version_that_the_index_withdrew_is_resolved_again() {
    let (kit, _) = counted();
    kit.deploy().ok();
    std::fs::remove_file(kit.wheels().join("alpha-1.0-py3-none-any.whl")).unwrap();
    simple(&kit.wheels(), "alpha", "1.1", &[]);
    // The layer is there: the withdrawn version still serves.
    kit.deploy().ok();
    std::fs::remove_dir_all(kit.path("store/blobs")).unwrap();
    std::fs::remove_dir_all(kit.path("store/unpacked")).unwrap();
    std::fs::remove_dir_all(kit.path("uv-cache")).unwrap();
    let ran = kit.deploy().ok();
    assert!(ran.report.lock.unwrap().starts_with("alpha==1.1"));
}

#[test]
fn a_run_killed_in_the_middle_leaves_nothing_that_counts_and_the_next_heals() {
    let mut kit = Kit::with_tool();
    let index = Index::start(Manner::Hang);
    let find_links = kit.wheels().display().to_string();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    kit.requirements("alpha\n");
    kit.unset("PIP_NO_INDEX");
    kit.set("PIP_INDEX_URL", &index.url("u:p"));
    let mut child = kit.command(&["--progress", "none"]).spawn().unwrap();
    let work = kit.path("out").join(format!("work-{}", child.id()));
    await_that("the resolution began", || {
        work.join("scratch/requirements.txt").exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(work.exists() && !kit.path("out/report.json").exists());

    kit.unset("PIP_INDEX_URL");
    kit.set("PIP_NO_INDEX", "1");
    kit.set("PIP_FIND_LINKS", &find_links);
    kit.deploy().ok();
    assert!(!work.exists());
}

#[test]
fn a_signal_stops_the_run_with_its_installer() {
    let mut kit = Kit::with_tool();
    let index = Index::start(Manner::Hang);
    kit.requirements("alpha\n");
    kit.unset("PIP_NO_INDEX");
    kit.unset("PIP_FIND_LINKS");
    kit.set("PIP_INDEX_URL", &index.url("u:p"));
    let mut child = kit.command(&["--progress", "none"]).spawn().unwrap();
    let work = kit.path("out").join(format!("work-{}", child.id()));
    await_that("the resolution began", || {
        work.join("scratch/requirements.txt").exists()
    });
    await_that("the installer started", || at_work(&work) > 0);
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!work.exists(), "the scratch folder is gone");
    await_that("the installer is gone", || at_work(&work) == 0);
}

#[test]
fn a_code_layer_of_the_store_is_deployed_by_its_name_and_a_missing_or_corrupt_one_is_an_entry() {
    let kit = Kit::with_tool();
    let code = kit.deploy().ok().report.code.unwrap();
    let run = |layer: &str| {
        let out = kit.path("out2");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ramen-worker"));
        command
            .args([
                "deploy",
                "--progress",
                "none",
                "--code-layer",
                layer,
                "--python",
                "3.11",
            ])
            .arg("--store")
            .arg(kit.path("store"))
            .arg("--out")
            .arg(&out)
            .arg("--host-dir")
            .arg(crate::kit::bin_dir());
        let status = command.status().unwrap();
        let report = std::fs::read(out.join("report.json")).unwrap();
        let report: ramen_group::Report = serde_json::from_slice(&report).unwrap();
        (status.code(), report)
    };
    let (status, report) = run(&format!("{}@{}", code.key, code.digest));
    assert_eq!(status, Some(0), "{report:#?}");
    assert_eq!(report.code.as_ref(), Some(&code));
    let (status, report) = run(&format!("{}@sha256:{}", code.key, "0".repeat(64)));
    assert_eq!(status, Some(4));
    assert_eq!(report.errors[0].reason, Reason::LayerMissing);

    // One that was overwritten is never unpacked.
    let digest = code.digest.strip_prefix("sha256:").unwrap();
    let blob = kit.path("store/blobs").join(format!("{digest}.tar.zst"));
    let mut bytes = std::fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&blob, bytes).unwrap();
    std::fs::remove_dir_all(kit.path("store/unpacked")).unwrap();
    let (status, report) = run(&format!("{}@{}", code.key, code.digest));
    assert_eq!(status, Some(4));
    assert_eq!(report.errors[0].reason, Reason::LayerCorrupt);
}

/// A small disk, taken away when dropped. `None` where mounting is not allowed.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let disk = Self(at);
        disk.run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"],
        )
        .then_some(disk)
    }

    fn grow(&self, size: &str) {
        assert!(self.run("mount", &["-o", &format!("remount,size={size}")]));
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        let output = std::process::Command::new(program)
            .args(args)
            .arg(&self.0)
            .output();
        output.is_ok_and(|output| output.status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.run("umount", &["--lazy"]);
    }
}

/// A requirement of some 6 MB that hardly compress.
fn heavy(kit: &Kit) {
    let mut state = 1_u64;
    let mut noise = String::new();
    while noise.len() < 6 << 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        noise.push(char::from(33 + u8::try_from((state >> 40) % 90).unwrap()));
    }
    let files = [
        ("alpha.py", "VERSION = '1'\n"),
        ("alpha_data.txt", noise.as_str()),
    ];
    Wheel {
        name: "alpha",
        version: "1.0",
        files: &files,
        ..Wheel::default()
    }
    .write(&kit.wheels());
    kit.requirements("alpha\n");
}

#[test]
fn req11_a_full_disk_is_called_so_wherever_it_is_and_room_heals_it() {
    for place in ["store", "out"] {
        let kit = Kit::with_tool();
        heavy(&kit);
        let Some(disk) = SmallDisk::mount(kit.path(place), "3m") else {
            ramen_skip::say("mounting a small disk is not allowed here");
            return;
        };
        let ran = kit.deploy();
        let finding = ran.failed(Reason::DiskFull);
        assert!(
            finding.message.contains("space") || finding.message.contains("room"),
            "{}",
            finding.message
        );
        assert!(kit.layers("deps").is_empty(), "{place}");
        disk.grow("64m");
        kit.deploy().ok();
    }
}

/// Waits for a condition; the limit only guards against a hang.
fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "still not so: {what}"
        );
        std::thread::yield_now();
    }
}

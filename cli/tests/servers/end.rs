//! The end of a bridge, however it comes: no server stays behind, nor anything that it started.

use std::path::Path;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::json;

use crate::support::{Bridge, Home, SERVER};

/// Deaf to `SIGTERM`, and after the server's own work to the end of its stdin, as is a program of its own.
const DEAF: &str = r#"
trap '' TERM
(while :; do sleep 1; done) &
echo "$$ $!" > "$PIDS.new"
mv "$PIDS.new" "$PIDS"
"#;

/// A bridge to such a server, which is connected, and the server's processes.
fn deaf() -> (Home, Bridge, Vec<Pid>) {
    let home = Home::new(&json!({}));
    let script = format!("{DEAF}{SERVER}\nwhile :; do sleep 1; done");
    let pids = home.path().join("pids");
    home.configure(&json!({"deaf": {"command": "sh", "args": ["-c", script],
        "env": {"WHO": "deaf", "MARK": home.mark("deaf"), "PIDS": pids.display().to_string()}}}));
    let file = home.config_file().display().to_string();
    let mut bridge = Bridge::start(home.command(&["bridge", "--config", &file]));
    assert_eq!(bridge.tools(), ["deaf_act"]);
    let pids = read(&pids);
    (home, bridge, pids)
}

/// The server's process and that which it started.
fn read(pids: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(pids).unwrap();
    let pids = text.split_whitespace();
    let pids = pids.map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap());
    let pids: Vec<_> = pids.collect();
    assert_eq!(pids.len(), 2);
    pids
}

fn until_dead(pids: &[Pid]) {
    for pid in pids {
        // One that is not there any more cannot be opened.
        if let Ok(process) = pidfd_open(*pid, PidfdFlags::empty()) {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            let patience = Timespec {
                tv_sec: 30,
                tv_nsec: 0,
            };
            assert_eq!(poll(&mut ended, Some(&patience)), Ok(1), "{pid:?} lives on");
        }
    }
}

#[test]
fn net01_a_bridge_whose_stdin_ends_leaves_no_process_behind() {
    let (_home, bridge, pids) = deaf();
    assert_eq!(bridge.end(), Some(0));
    until_dead(&pids);
}

#[test]
fn net01_a_bridge_that_is_killed_leaves_no_process_behind() {
    let (_home, mut bridge, pids) = deaf();
    bridge.child.kill().unwrap();
    bridge.child.wait().unwrap();
    until_dead(&pids);
}

#[test]
fn a_bridge_that_is_told_to_end_again_and_again_leaves_no_process_behind() {
    let (_home, mut bridge, pids) = deaf();
    let process = Pid::from_child(&bridge.child);
    drop(bridge.child.stdin.take());
    while bridge.child.try_wait().unwrap().is_none() {
        kill_process(process, Signal::TERM).unwrap();
    }
    assert_eq!(bridge.child.wait().unwrap().code(), Some(0));
    until_dead(&pids);
}

#[test]
fn a_command_that_is_killed_in_a_call_leaves_no_process_behind() {
    let home = Home::new(&json!({}));
    // What is asked first comes when the server is watched.
    let script = format!("read -r line\n{DEAF}while :; do sleep 1; done");
    let pids = home.path().join("pids");
    home.configure(&json!({"deaf": {"command": "sh", "args": ["-c", script],
        "env": {"PIDS": pids.display().to_string()}}}));
    let mut call = home
        .command(&["call", "act", "--server", "deaf"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !pids.exists() {
        std::thread::yield_now();
    }
    let pids = read(&pids);
    call.kill().unwrap();
    call.wait().unwrap();
    until_dead(&pids);
}

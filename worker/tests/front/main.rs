//! The front process against gRPC, with a scripted host instead of Python.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[expect(
    dead_code,
    reason = "shared with the tests of real Python, which use the rest"
)]
#[path = "../support/harness.rs"]
mod harness;

mod calls;
mod gate;
#[expect(dead_code, reason = "shared with the tests of the gateway")]
#[path = "../../../listener/tests/support/http2.rs"]
mod http2;
mod leaving;
mod limits;
mod lists;
mod port;
mod process;
mod reload;
mod session;
mod tls;
mod traces;
mod unread;
mod wire;

use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

/// A host directory whose `ramen-host-3.11` is the scripted one.
fn scripted_hosts() -> PathBuf {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let host = env!("CARGO_BIN_EXE_ramen-scripted-host");
        std::os::unix::fs::symlink(host, dir.path().join("ramen-host-3.11")).unwrap();
        dir
    });
    dir.path().to_path_buf()
}

fn setup() -> harness::Setup {
    harness::Setup::new(&scripted_hosts())
}

/// A group with one scripted tool per name.
fn group(tools: &[&str]) -> harness::Group {
    tools.iter().fold(harness::Group::new(), |group, name| {
        group.scripted(name, name)
    })
}

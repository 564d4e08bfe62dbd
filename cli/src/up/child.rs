//! Child processes in a group of their own, ended with all that they started.

use std::path::Path;
use std::time::Duration;

use ramen_group::secrets::ENV_PREFIX;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// A child whose process group dies with this value.
pub(crate) struct Running {
    pub(crate) child: Child,
    group: Option<Pid>,
}

/// A command that gets the secrets which it is given. Those in this process's own environment are those of a folder, and
/// whoever runs one names them.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes()) {
            command.env_remove(name);
        }
    }
    command
}

/// Makes the child the leader of its own process group, so that a terminal's interrupt reaches only `ramen up`, which
/// then ends its children in order.
pub(crate) fn own_group(command: &mut Command) {
    // The worker ends itself when this process is gone, however it went.
    command.env("RAMEN_PARENT_PID", std::process::id().to_string());
    command.process_group(0).kill_on_drop(true);
}

/// Starts a child made with [`own_group`].
pub(crate) fn spawn(mut command: Command) -> std::io::Result<Running> {
    let child = command.spawn()?;
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    Ok(Running { child, group })
}

impl Running {
    /// The process id, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// SIGTERM, then SIGKILL to the whole group after `grace`.
    pub(crate) async fn stop(mut self, grace: Duration) {
        if let Some(pid) = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
        {
            // Only the leader: it ends its own children in order.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let _ = tokio::time::timeout(grace, self.child.wait()).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Also when the leader ended by itself: it may have left others behind.
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

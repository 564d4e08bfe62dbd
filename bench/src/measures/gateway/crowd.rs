//! Many groups with a stub of a worker behind each.

use anyhow::Context as _;
use tokio::process::{Child, Command};

use crate::servers::announced;
use crate::servers::gateway::Group;

/// The stub that is all workers.
pub(super) struct Stub {
    port: String,
    _child: Child,
}

impl Stub {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("stub");
        let (child, said) = announced(command).await?;
        let port = said.into_iter().next().context("the stub tells no port")?;
        Ok(Self {
            port,
            _child: child,
        })
    }

    /// The address of one of its workers; each is another machine to the gateway.
    pub(super) fn worker(&self, n: usize) -> String {
        format!("127.1.{}.{}:{}", n / 250, n % 250 + 1, self.port)
    }

    /// So many groups, each with a worker of its own.
    pub(super) fn groups(&self, count: usize) -> Vec<Group> {
        let group = |n| Group {
            name: name(n),
            worker_key: format!("rmk_worker_{n}"),
            workers: vec![self.worker(n)],
        };
        (0..count).map(group).collect()
    }
}

/// The name of the n-th group.
pub(super) fn name(n: usize) -> String {
    format!("group-{n}")
}

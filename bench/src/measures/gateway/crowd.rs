//! Many groups with a stub of a worker behind each.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::process::{Child, Command};

use crate::http::{Connection, request};
use crate::servers::announced;
use crate::servers::gateway::{Gateway, Group, path};

pub(super) const LIST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
const PATIENCE: Duration = Duration::from_mins(1);

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

/// Whether a group answers.
pub(super) async fn is_served(gateway: &Gateway, group: &str) -> anyhow::Result<bool> {
    let mut connection = Connection::connect(&gateway.address)
        .await
        .context("cannot connect to the gateway")?;
    let (address, key) = (&gateway.address, gateway.key.as_str());
    let request = request(address, &path(group), Some(key), None, LIST);
    // A group that is not known is refused.
    Ok(connection.send(&request).await.is_ok())
}

/// Waits until the last of so many groups is served, which is when all are known.
pub(super) async fn served(gateway: &Gateway, count: usize) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !is_served(gateway, &name(count - 1)).await? {
        ensure!(begin.elapsed() < PATIENCE, "the groups are never served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

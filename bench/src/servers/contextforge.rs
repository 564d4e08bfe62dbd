//! The peer gateway, in front of a peer server, in a venv of its own.

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::{Server, announced};
use crate::lab::{Lab, root};
use crate::load::Target;

/// The peer as its own guide runs it on one machine.
pub(crate) struct ContextForge {
    pub(crate) server: Server,
    /// What it calls the calculator.
    pub(crate) tool: String,
    pub(crate) database: String,
}

impl ContextForge {
    pub(crate) async fn start(lab: &Lab, upstream: &Target) -> anyhow::Result<Self> {
        let Target::Http { address, path, .. } = upstream else {
            anyhow::bail!("the upstream speaks no HTTP");
        };
        let python = lab.contextforge.as_ref().context(
            "no Python with mcp-contextforge-gateway: `make bench-gateway` makes one (RAMEN_BENCH_CONTEXTFORGE)",
        )?;
        let mut command = Command::new(python);
        command
            .arg("-B")
            .arg(root().join("bench/peers/contextforge.py"))
            .arg(format!("http://{address}{path}"))
            .arg(lab.folder("contextforge")?);
        let (child, said) = announced(command).await?;
        let [port, path, key, tool, database] = said.as_slice() else {
            anyhow::bail!("ContextForge says {said:?}");
        };
        ensure!(!key.is_empty(), "ContextForge gives no key");
        let target = Target::Http {
            address: format!("127.0.0.1:{port}"),
            path: path.clone(),
            key: Some(key.clone()),
            // It binds its sessions at the upstream to those of its clients.
            session: true,
        };
        Ok(Self {
            server: Server::of(child, target)?,
            tool: tool.clone(),
            database: database.clone(),
        })
    }
}

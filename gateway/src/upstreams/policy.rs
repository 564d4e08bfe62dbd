//! What this gateway lets upstreams be.

use std::time::Duration;

use ramen_client::config::Transport;
use ramen_client::{Addresses, BackoffPolicy, Limits, ManagerOptions, Options, ServerConfig};
use ramen_group::CidrSet;

use super::{UpstreamSpec, address};
use crate::names;

/// What upstreams may be and may cost. The default is that of a gateway which many share: public addresses, no programs.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Ranges that may be connected to although they are not public.
    pub allowed: CidrSet,
    /// Whether programs are started.
    pub commands: bool,
    /// Bounds of each connection.
    pub limits: Limits,
    /// How reconnecting waits.
    pub backoff: BackoffPolicy,
    /// How often the lists of a server over HTTP are asked for again.
    pub look_every: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allowed: CidrSet::default(),
            commands: false,
            limits: Limits {
                message: names::MAX_MESSAGE,
                pending: 256,
                pages: 100,
                items: 1000,
                list: 2 * 1024 * 1024,
                connect: Duration::from_secs(30),
                request: Duration::from_mins(1),
                ..Limits::default()
            },
            backoff: BackoffPolicy::default(),
            look_every: Duration::from_mins(1),
        }
    }
}

impl Policy {
    /// How the servers of a group are connected.
    pub(super) fn options(&self) -> ManagerOptions {
        let allowed = self.allowed.clone();
        ManagerOptions {
            client: Options {
                limits: self.limits,
                addresses: Some(Addresses::new(move |found| {
                    address::is_public(found) || allowed.contains(found)
                })),
                ..Options::default()
            },
            backoff: self.backoff,
            retry_failed: true,
            keep_lists: Some(self.look_every),
            ..ManagerOptions::default()
        }
    }

    /// The server to connect, or why it is not to be.
    pub(super) fn judge(&self, spec: &UpstreamSpec) -> Result<ServerConfig, String> {
        let server = spec.server.clone()?;
        match &server.transport {
            Transport::Stdio { .. } if !self.commands => Err(format!(
                "this gateway starts no programs ({} is not set): give the upstream a url",
                names::UPSTREAM_COMMANDS
            )),
            Transport::Http { url, .. } if !matches!(url.expose().scheme(), "http" | "https") => {
                let scheme = url.expose().scheme();
                Err(format!(
                    "its url is one of {scheme}; only http and https are spoken"
                ))
            }
            _ => Ok(server),
        }
    }
}

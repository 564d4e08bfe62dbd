//! Other MCP servers of a group, with their values out of the Secrets of the file.

use ramen_client::config::Transport;
use ramen_crds::validate::{Reach, SecretName, Upstream};
use ramen_gateway::upstreams::UpstreamSpec;

use super::Secrets;
use crate::up::group::Key;

/// The upstreams of a group. One whose Secret is not there cannot be used, and the others can.
pub(super) fn upstreams(all: &[Upstream], key: &Key, secrets: &Secrets) -> Vec<UpstreamSpec> {
    let look_up = |secret: &SecretName, entry: &str| {
        let secret = secrets.get(&(key.0.clone(), secret.as_str().to_owned()))?;
        secret.get(entry).map(Vec::as_slice)
    };
    let spec = |upstream: &Upstream| {
        let transport = match &upstream.reach {
            Reach::Http { url, headers } => {
                headers.resolve(look_up).map(|headers| Transport::Http {
                    url: url.clone(),
                    headers,
                })
            }
            Reach::Command { command, args, env } => {
                env.resolve(look_up).map(|env| Transport::Stdio {
                    command: command.clone(),
                    args: args.clone(),
                    env,
                    cwd: None,
                })
            }
        };
        let allowed = &upstream.allowed_tools;
        UpstreamSpec::new(upstream.name.as_str(), transport, upstream.timeout, allowed)
    };
    all.iter().map(spec).collect()
}

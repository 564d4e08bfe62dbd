//! The bridge over any MCP servers: those of a configuration as one, or a single one under its own names.

use std::collections::BTreeMap;

use ramen_client::hub::{Hub, Naming};
use ramen_client::{ManagerOptions, Options, ServerConfig};
use ramen_redact::Secret;

use super::BridgeArgs;
use crate::exit::Failure;
use crate::servers;

/// What is served.
pub(super) struct Plan {
    servers: BTreeMap<String, ServerConfig>,
    naming: Naming,
    options: Options,
}

/// The plan when the arguments name servers of their own; `None` for the bridge to a worker.
pub(super) fn plan(args: &BridgeArgs) -> Result<Option<Plan>, Failure> {
    let file = args.connect.config.as_ref();
    let one = match (&args.url, &args.connect.server) {
        (Some(_), Some(_)) => return Err(Failure::usage("URL and --server cannot go together")),
        (Some(url), None) => Some(("server".to_owned(), servers::at(url)?)),
        (None, Some(name)) => Some((name.clone(), servers::named(name, file)?)),
        (None, None) => None,
    };
    let (mut servers, naming) = match (one, file) {
        (Some(one), _) => (BTreeMap::from([one]), Naming::Plain),
        (None, Some(_)) => (servers::configured(file)?, Naming::Prefixed),
        (None, None) if args.header.is_empty() => return Ok(None),
        (None, None) => return Err(Failure::usage("--header needs a URL")),
    };
    if args.url.is_some() {
        for header in &args.header {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| Failure::usage("--header must be 'Name: value'"))?;
            let value = Secret::from(value.trim());
            servers = servers
                .into_iter()
                .map(|(key, config)| (key, config.with(name.trim(), value.clone())))
                .collect();
        }
    } else if !args.header.is_empty() {
        return Err(Failure::usage("--header needs a URL"));
    }
    let mut options = servers::options(args.connect.timeout);
    args.oauth.tune(&mut options);
    Ok(Some(Plan {
        servers,
        naming,
        options,
    }))
}

/// Serves stdin and stdout until they end.
pub(super) async fn serve(plan: Plan) {
    let options = ManagerOptions {
        client: plan.options,
        // A session of an editor lasts for days: what is not there yet may come.
        retry_failed: true,
        ..ManagerOptions::default()
    };
    let hub = Hub::open(plan.servers, options, plan.naming);
    hub.serve(
        tokio::io::stdin(),
        tokio::io::stdout(),
        crate::signals::stop(),
    )
    .await;
    hub.manager().close().await;
}

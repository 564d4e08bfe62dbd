//! The bridge over any MCP servers: those of a configuration as one, or a single one under its own names.

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_client::hub::{Hub, Naming};
use ramen_client::{ManagerOptions, Options, ServerConfig};

use super::BridgeArgs;
use crate::exit::Failure;
use crate::servers;
use crate::signals::Stops;

/// From the end of stdin to that of the last server. A client may kill us two seconds after it closed stdin.
const END: Duration = Duration::from_millis(1800);
/// What servers get of it at least, when work in flight took the rest.
const LEAST: Duration = Duration::from_millis(400);
/// How long servers that were killed may take to be gone.
const SPARE: Duration = Duration::from_millis(100);

/// What is served.
pub(super) struct Plan {
    servers: BTreeMap<String, ServerConfig>,
    naming: Naming,
    options: Options,
}

/// The plan when the arguments name servers of their own, or a group that is more than its worker; `None` for the bridge
/// to a worker.
pub(super) fn plan(args: &BridgeArgs) -> Result<Option<Plan>, Failure> {
    let connect = &args.connect;
    let one = match (&args.url, &connect.server) {
        (Some(_), Some(_)) => return Err(Failure::usage("URL and --server cannot go together")),
        (Some(url), None) => Some(("server".to_owned(), servers::at(url, &connect.header)?)),
        (None, _) => servers::named(connect)?,
    };
    let (servers, naming) = match (one, connect.config.as_ref()) {
        (Some(one), _) => (BTreeMap::from([one]), Naming::Plain),
        (None, Some(file)) => (servers::configured(Some(file))?, Naming::Prefixed),
        // The health is the worker's, whatever the group is.
        (None, None) if args.health.is_some() => return Ok(None),
        (None, None) => {
            return Ok(connect.gateway()?.map(|(_, config)| Plan {
                servers: BTreeMap::from([("ramen".to_owned(), config)]),
                naming: Naming::Plain,
                options: servers::options_with_a_key(connect.timeout),
            }));
        }
    };
    let mut options = servers::options(args.connect.timeout);
    args.oauth.tune(&mut options);
    Ok(Some(Plan {
        servers,
        naming,
        options,
    }))
}

/// Serves stdin and stdout until they end, or a signal comes. The first signal after that ends the servers at once, and a
/// second one does so however the end began.
pub(super) async fn serve(plan: Plan) {
    let stops = Stops::count();
    let options = ManagerOptions {
        client: plan.options,
        // A session of an editor lasts for days: what is not there yet may come.
        retry_failed: true,
        ..ManagerOptions::default()
    };
    let hub = Hub::open(plan.servers, options, plan.naming);
    let serving = hub.serve(
        tokio::io::stdin(),
        tokio::io::stdout(),
        stops.clone().reach(1),
    );
    let left = tokio::select! {
        began = serving => END.saturating_sub(began.elapsed()).max(LEAST),
        () = stops.clone().reach(2) => Duration::ZERO,
    };
    let manager = hub.manager();
    let told = stops.so_far();
    let closing = async {
        tokio::select! {
            () = manager.close_within(left) => {}
            () = stops.reach(told + 1) => manager.close_within(Duration::ZERO).await,
        }
    };
    // What even SIGKILL does not end at once is left to the system.
    let _ = tokio::time::timeout(left + SPARE, closing).await;
}

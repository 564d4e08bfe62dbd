//! `ramen bridge`: a worker as an ordinary stdio MCP server.
//!
//! Requests travel byte for byte through `Call`, or through a `Session` of their own when notifications may come before
//! the answer. Nothing but JSON-RPC is ever written to stdout.

use std::process::ExitCode;

use clap::Args;
use ramen_client::oauth::{Registered, SignIn};
use ramen_proto::code_name;

use crate::connect::{ConnectArgs, KeySource};
use crate::exit::Failure;
use crate::names;
use crate::upstream::Upstream;

mod errors;
mod exchange;
mod framing;
mod many;
mod message;
mod pipe;
mod print_config;
mod watch;

pub use pipe::{Limits, serve};
pub use print_config::Client;

/// `ramen bridge`.
#[derive(Args)]
pub(crate) struct BridgeArgs {
    /// Address of a Streamable HTTP server to serve instead of a worker
    #[arg(value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Ask grpc.health.v1 for SERVICE (all of the worker when left out), print the status and exit 0 only when SERVING
    #[arg(long, value_name = "SERVICE", num_args = 0..=1, default_missing_value = "")]
    health: Option<String>,
    /// Print the JSON to paste into a client's configuration and exit; with URL for a client that speaks HTTP
    #[arg(long, value_name = "CLIENT", conflicts_with = "health")]
    print_config: Option<Client>,
    /// Requests at work at once; more wait in order
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_inflight: u32,
    #[command(flatten)]
    oauth: OauthArgs,
}

/// Flags of the sign-in that other bridges have. At a server what this one would not do is refused, not left undone; a worker
/// takes keys alone, and a configuration that has one works as it is.
#[derive(Args)]
#[command(
    next_help_heading = "Sign-in at the server of URL or --server (a worker takes keys alone, and these are passed over)"
)]
struct OauthArgs {
    /// Known of other bridges and refused: servers say themselves where to sign in; passed over for a worker with a key
    #[arg(long, env = names::BRIDGE_OAUTH, value_name = "CONSOLE_URL")]
    oauth: Option<String>,
    /// Client id of the sign-in
    #[arg(long, env = names::BRIDGE_CLIENT_ID, value_name = "ID")]
    client_id: Option<String>,
    /// File that keeps the token
    #[arg(long, env = names::BRIDGE_TOKEN_FILE, value_name = "FILE")]
    token_file: Option<String>,
    /// Known of other bridges and refused, but for a worker: tokens are kept in a file, see --token-file
    #[arg(long, env = names::BRIDGE_KEYCHAIN, value_parser = clap::builder::FalseyValueParser::new())]
    keychain: bool,
    /// Known of other bridges: without effect for a worker, else refused, as tokens are kept until they end
    #[arg(long, env = names::BRIDGE_IDLE_TIMEOUT, value_name = "SECONDS")]
    idle_timeout: Option<String>,
    /// Print the sign-in link instead of opening a browser
    #[arg(long)]
    no_browser: bool,
}

impl OauthArgs {
    /// Signs in as these flags say.
    fn tune(&self, options: &mut ramen_client::Options) {
        let open = !self.no_browser;
        let show = move |address: &url::Url| {
            crate::servers::browse(address, open);
            Ok(())
        };
        let file = self.token_file.as_ref().filter(|file| !file.is_empty());
        let kept = options.sign_in.take();
        let sign_in = match (file, kept) {
            (Some(file), _) => Some(SignIn::new(file, show)),
            (None, Some(kept)) => Some(kept.shown_by(show)),
            (None, None) => None,
        };
        let id = self.client_id.clone().filter(|id| !id.is_empty());
        options.sign_in = sign_in.map(|sign_in| {
            sign_in.with_client(Registered {
                id,
                ..Registered::default()
            })
        });
    }

    /// Refuses what is asked for and not done at a server that signs in.
    fn check(&self) -> Result<(), Failure> {
        // As long as a token is good, as it is here.
        let ever = self.idle_timeout.as_deref() == Some("0");
        let asked = [
            (given(self.oauth.as_ref()), "--oauth"),
            (self.keychain, "--keychain"),
            (given(self.idle_timeout.as_ref()) && !ever, "--idle-timeout"),
        ];
        let Some((_, flag)) = asked.iter().find(|(given, _)| *given) else {
            return Ok(());
        };
        Err(Failure::usage(format!(
            "{flag} is not supported: leave it out; the server says where to sign in, and --token-file where the token is kept until it ends"
        )))
    }

    /// What is passed over for a worker, which takes keys alone, as a note. Only who relies on a sign-in and has no key is
    /// refused: nothing would be answered. Flags that only tune a sign-in are harmless where there is none.
    fn passed_over(&self, key: &KeySource) -> Result<Option<String>, Failure> {
        let Self {
            oauth,
            client_id,
            token_file,
            keychain,
            idle_timeout: _,
            no_browser: _,
        } = self;
        if given(oauth.as_ref()) && *key == KeySource::Nowhere {
            return Err(Failure::usage(format!(
                "--oauth: a worker knows no sign-in; give the group's key with {} or --key-file, or the gateway's address as URL",
                names::BRIDGE_KEY
            )));
        }
        let asked = [
            (given(oauth.as_ref()), "--oauth", names::BRIDGE_OAUTH),
            (
                given(client_id.as_ref()),
                "--client-id",
                names::BRIDGE_CLIENT_ID,
            ),
            (
                given(token_file.as_ref()),
                "--token-file",
                names::BRIDGE_TOKEN_FILE,
            ),
            (*keychain, "--keychain", names::BRIDGE_KEYCHAIN),
        ];
        let named: Vec<_> = asked
            .iter()
            .filter(|(given, _, _)| *given)
            .map(|(_, flag, variable)| format!("{flag} ({variable})"))
            .collect();
        Ok((!named.is_empty()).then(|| {
            format!(
                "note: {} passed over: a worker knows no sign-in and takes the group's key",
                named.join(", ")
            )
        }))
    }
}

fn given(value: Option<&String>) -> bool {
    value.is_some_and(|value| !value.is_empty())
}

/// Runs the command.
pub(crate) fn run(args: BridgeArgs) -> Result<ExitCode, Failure> {
    let plan = many::plan(&args)?;
    let BridgeArgs {
        url,
        connect,
        health,
        print_config,
        max_inflight,
        oauth,
    } = args;
    if url.is_some() || connect.server.is_some() || connect.config.is_some() {
        oauth.check()?;
    } else if let Some(note) = oauth.passed_over(&connect.key_source())? {
        crate::output::note(&note);
    }
    if let Some(client) = print_config {
        crate::output::line(&print_config::render(client, url.as_deref(), &connect)?);
        return Ok(ExitCode::SUCCESS);
    }
    if plan.is_some() && health.is_some() {
        return Err(Failure::usage(
            "--health asks a worker: it cannot go with URL, --server or --config",
        ));
    }
    if let Some(plan) = plan {
        let runtime = crate::runtime()?;
        runtime.block_on(many::serve(plan));
        runtime.shutdown_background();
        return Ok(ExitCode::SUCCESS);
    }
    let upstream = Upstream::new(connect.resolve()?);
    let runtime = crate::runtime()?;
    let code = if let Some(service) = health {
        runtime.block_on(check_health(&upstream, &service))
    } else {
        let limits = Limits {
            inflight: max_inflight as usize,
            ..Limits::default()
        };
        let input = tokio::io::BufReader::with_capacity(64 * 1024, tokio::io::stdin());
        runtime.block_on(async {
            serve(
                input,
                tokio::io::stdout(),
                upstream,
                limits,
                crate::signals::stop(),
            )
            .await
        })
    };
    // A read of stdin may still be blocked in its thread: it must not keep the process.
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

async fn check_health(upstream: &Upstream, service: &str) -> u8 {
    match upstream.health(service).await {
        Ok(status) => {
            crate::output::line(status);
            u8::from(status != "SERVING")
        }
        Err(status) => {
            crate::output::note(&format!(
                "{}: {}",
                code_name(status.code()),
                status.message()
            ));
            1
        }
    }
}

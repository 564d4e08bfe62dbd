//! `ramen inspect`: what the configured servers advertised last, and when. Nothing is started.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use ramen_client::ServerConfig;
use ramen_client::cache::Entry;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::{self, OutputArg};
use crate::servers;

/// `ramen inspect`.
#[derive(Args)]
pub(crate) struct InspectArgs {
    /// One server, with its tools [default: all servers]
    server: Option<String>,
    /// File with `mcpServers` [default: `$XDG_CONFIG_HOME/ramen/mcp.json` and `.ramen/mcp.json`]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

/// What is known of one server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    name: String,
    state: &'static str,
    /// Seconds since 1970.
    seen: Option<u64>,
    server: Option<String>,
    protocol: Option<String>,
    tools: Option<Vec<Value>>,
}

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let configured = servers::configured(args.config.as_ref())?;
    let mut cached = servers::cache()
        .map(|cache| cache.entries())
        .unwrap_or_default();
    let mut all: Vec<Known> = configured
        .iter()
        .map(|(name, config)| Known::of(name, config, cached.remove(name)))
        .collect();
    let Some(wanted) = &args.server else {
        args.output.print(&all, || overview(&all))?;
        return Ok(ExitCode::SUCCESS);
    };
    let Some(at) = all.iter().position(|known| known.name == *wanted) else {
        let there = all.iter().map(|known| known.name.as_str());
        return Err(servers::unknown(wanted, there));
    };
    let known = all.swap_remove(at);
    args.output.print(&known, || detail(&known))?;
    Ok(ExitCode::SUCCESS)
}

impl Known {
    fn of(name: &str, config: &ServerConfig, entry: Option<Entry>) -> Self {
        let state = match &entry {
            _ if !config.enabled => "off",
            None => "never seen",
            Some(entry) if entry.fingerprint == config.fingerprint() => "known",
            Some(_) => "configuration changed",
        };
        let server = entry.as_ref().and_then(|entry| entry.server_info.as_ref());
        Self {
            name: name.to_owned(),
            state,
            server: server.map(|server| format!("{} {}", server.name, server.version)),
            seen: entry.as_ref().map(|entry| entry.saved_at),
            protocol: entry.as_ref().map(|entry| entry.protocol_version.clone()),
            tools: entry.map(|entry| entry.tools.iter().map(|tool| json!(tool)).collect()),
        }
    }
}

fn overview(all: &[Known]) -> String {
    let rows: Vec<_> = all
        .iter()
        .map(|known| {
            vec![
                known.name.clone(),
                known.state.to_owned(),
                known.seen.map(ago).unwrap_or_default(),
                known
                    .tools
                    .as_ref()
                    .map(|tools| tools.len().to_string())
                    .unwrap_or_default(),
                known.protocol.clone().unwrap_or_default(),
                known.server.clone().unwrap_or_default(),
            ]
        })
        .collect();
    output::columns(
        &["NAME", "STATE", "SEEN", "TOOLS", "PROTOCOL", "SERVER"],
        &rows,
    )
}

fn detail(known: &Known) -> String {
    let mut text = overview(std::slice::from_ref(known));
    let rows: Vec<_> = known
        .tools
        .iter()
        .flatten()
        .map(|tool| {
            let line = tool["description"]
                .as_str()
                .unwrap_or_default()
                .lines()
                .next();
            let line: String = line.unwrap_or_default().chars().take(80).collect();
            vec![tool["name"].as_str().unwrap_or_default().to_owned(), line]
        })
        .collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&output::columns(&["TOOL", "DESCRIPTION"], &rows));
    }
    text
}

/// How long ago, in the largest unit.
fn ago(then: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs()).saturating_sub(then);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

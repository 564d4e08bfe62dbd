//! The client: how soon many servers' tools are known when a trusted cache has them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ramen_client::Tool;
use ramen_client::cache::{Cache, Entry};
use ramen_client::config::{Sources, load};
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::report::Findings;

const SERVERS: usize = 50;
const TOOLS: usize = 20;

/// From the start of `ramen bridge --config` to its first `tools/list` answer.
pub(super) async fn cold(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let home = lab.folder("client")?;
    let mark = home.join("started");
    let config = home.join("mcp.json");
    let script = format!("echo x >> {}; exec cat", mark.display());
    let servers: BTreeMap<String, Value> = (0..SERVERS)
        .map(|n| {
            (
                format!("server{n}"),
                json!({ "command": "sh", "args": ["-c", script, n.to_string()] }),
            )
        })
        .collect();
    std::fs::write(&config, json!({ "mcpServers": servers }).to_string())?;
    let loaded = load(&Sources {
        global: Some(config.clone()),
        project: None,
        workspace: None,
        env: &|_| None,
    });
    let cache = Cache::new(home.join(".cache/ramen/mcp-cache.json"));
    let tools: Vec<Tool> = (0..TOOLS).map(tool).collect::<Result<_, _>>()?;
    for (name, server) in &loaded.servers {
        let entry = Entry::now(server.fingerprint(), "2025-11-25", None, tools.clone());
        cache.put(name, entry).context("cannot write the cache")?;
    }
    let program = lab.bin.join("ramen");
    let mut rounds = Vec::new();
    for _ in 0..lab.times(40) {
        let mut command = Command::new(&program);
        command
            .args(["bridge", "--config"])
            .arg(&config)
            .env_clear()
            .env("HOME", &home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let taken = tokio::task::spawn_blocking(move || once(command)).await??;
        rounds.push(taken);
    }
    ensure!(!mark.exists(), "a server was started");
    let note =
        format!("{SERVERS} servers of {TOOLS} tools each, none started; process start included");
    findings.add("client_cold_ms", rounds, note);
    Ok(())
}

/// A tool as servers define them: a few hundred bytes.
fn tool(n: usize) -> Result<Tool, serde_json::Error> {
    serde_json::from_value(json!({
        "name": format!("tool_{n}"),
        "description": "Looks something up, says what it found, and tells what to do when nothing was found.",
        "inputSchema": {"type": "object", "required": ["query"], "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        }},
    }))
}

/// Milliseconds of one run.
fn once(mut command: Command) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the bridge")?;
    let mut stdin = child.stdin.take().context("stdin")?;
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    write!(stdin, "{hello}\n{list}\n")?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let answer: Value = loop {
        let line = lines.next().context("the bridge ended")??;
        let message: Value = serde_json::from_str(&line)?;
        if message["id"] == 2 {
            break message;
        }
    };
    let taken = started.elapsed().as_secs_f64() * 1e3;
    let tools = answer["result"]["tools"].as_array().map_or(0, Vec::len);
    ensure!(tools == SERVERS * TOOLS, "{tools} tools");
    drop(stdin);
    child.wait()?;
    Ok(taken)
}

//! The client against servers made with the official Python SDK, over stdio and Streamable HTTP, in both eras.
//!
//! Needs the Python of the test environment (`make setup`, or `RAMEN_TEST_PYTHON`); says SKIPPED where there is none.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod npm;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ramen_client::{CallOptions, Client, ClientError, EraChoice, Json, Options, ServerConfig};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/python_servers/server.py"
);
const PATIENCE: Duration = Duration::from_mins(1);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("this should have happened long ago")
}

fn python() -> Option<PathBuf> {
    let named = std::env::var_os("RAMEN_TEST_PYTHON").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let found = named.or_else(|| home.map(|home| home.join(".cache/ramen/venv/bin/python")));
    let found = found.filter(|python| python.exists());
    if found.is_none() {
        ramen_skip::say("no Python with the official SDK; `make setup` makes one");
    }
    found
}

/// One way to reach the server.
struct Way {
    what: String,
    client: Client,
    version: &'static str,
    /// The server can send what nobody asked for.
    pushes: bool,
    _process: Option<Arc<Child>>,
}

/// Every transport in every era.
async fn ways() -> Vec<Way> {
    let Some(python) = python() else {
        return Vec::new();
    };
    let python = python.to_str().expect("a path that is text").to_owned();
    let eras = [
        (EraChoice::Auto, "2026-07-28"),
        (EraChoice::Legacy, "2025-11-25"),
    ];
    let mut ways = Vec::new();
    for mode in ["stdio", "sessions", "stateless", "json"] {
        let (plain, process) = if mode == "stdio" {
            (ServerConfig::stdio(&python, [SERVER, mode]), None)
        } else {
            let (url, process) = start(&python, mode).await;
            (
                ServerConfig::http(url.parse().unwrap()),
                Some(Arc::new(process)),
            )
        };
        for (era, version) in eras {
            let what = format!("{mode}, {version}");
            let config = plain.clone().with_era(era);
            let client = soon(Client::connect("official", &config, &Options::default()))
                .await
                .unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
            ways.push(Way {
                client,
                version,
                pushes: mode == "stdio" || mode == "sessions" || version == "2026-07-28",
                what,
                _process: process.clone(),
            });
        }
    }
    ways
}

async fn start(python: &str, mode: &str) -> (String, Child) {
    let mut process = Command::new(python)
        .args([SERVER, mode])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = process.stdout.take().unwrap();
    soon(BufReader::new(stdout).read_line(&mut line))
        .await
        .unwrap();
    (line.trim().to_owned(), process)
}

fn args(value: &serde_json::Value) -> Json {
    Json::from(value)
}

#[tokio::test]
async fn everything_a_client_asks_is_answered_over_each_transport_in_each_era() {
    for way in ways().await {
        let Way { what, client, .. } = &way;
        assert_eq!(client.version().as_str(), way.version, "{what}");
        assert_eq!(client.server_info(), "official 9.1", "{what}");
        let names: Vec<_> = client
            .tools()
            .iter()
            .map(|tool| tool.name.clone())
            .collect();
        assert_eq!(
            names,
            ["add", "fail", "steps", "forever", "was_stopped", "grow"],
            "{what}"
        );

        let sum = soon(client.call_tool("add", &args(&json!({"a": 40, "b": 2})))).await;
        assert_eq!(sum.unwrap(), "42", "{what}");
        let failed = soon(client.call_tool("fail", &args(&json!({"why": "no such city"})))).await;
        assert!(
            failed.unwrap().contains("no such city"),
            "{what}: a failure of the tool is text"
        );
        let unknown = soon(client.call_tool("no_such_tool", &args(&json!({})))).await;
        assert!(
            unknown.is_err() || unknown.unwrap().contains("no_such_tool"),
            "{what}"
        );

        let resources = soon(client.list_resources()).await.unwrap();
        let uris: Vec<_> = resources
            .iter()
            .map(|resource| resource.uri.as_str())
            .collect();
        assert_eq!(uris, ["demo://text", "demo://bytes"], "{what}");
        let text = soon(client.read_resource("demo://text")).await.unwrap();
        assert_eq!(text, "the text", "{what}");
        let bytes = soon(client.read_resource("demo://bytes")).await.unwrap();
        assert_eq!(bytes, "[binary demo://bytes: image/png, 4 bytes]", "{what}");
        let missing = soon(client.read_resource("demo://missing")).await;
        assert!(
            matches!(missing, Err(ClientError::Rpc(_))),
            "{what}: {missing:?}"
        );

        let prompts = soon(client.list_prompts()).await.unwrap();
        assert_eq!(prompts[0].name, "review", "{what}");
        assert!(prompts[0].arguments[0].required, "{what}");
        let arguments = BTreeMap::from([("code".to_owned(), "x = 1".to_owned())]);
        let prompt = soon(client.get_prompt("review", &arguments)).await.unwrap();
        assert_eq!(prompt, "Please review: x = 1", "{what}");
        soon(client.close()).await;
    }
}

#[tokio::test]
async fn progress_and_concurrent_calls_and_cancelling_work_with_the_official_server() {
    for way in ways().await {
        let Way { what, client, .. } = &way;
        let sums = (0..20).map(|n| async move {
            let sum = client
                .call_tool("add", &args(&json!({"a": n, "b": n})))
                .await;
            assert_eq!(sum.unwrap(), (2 * n).to_string());
        });
        soon(futures::future::join_all(sums)).await;

        // An answer that is one JSON object has no room for reports.
        if !what.starts_with("json") {
            let (sender, mut reports) = mpsc::channel(8);
            let options = CallOptions {
                progress: Some(sender),
                ..CallOptions::default()
            };
            let done = soon(client.call_tool_with("steps", &args(&json!({})), options)).await;
            assert_eq!(done.unwrap(), "done", "{what}");
            let mut messages = Vec::new();
            while let Some(report) = reports.recv().await {
                messages.push(report.message.unwrap_or_default());
            }
            assert_eq!(messages, ["step 0", "step 1", "step 2"], "{what}");
        }

        // Over legacy HTTP without sessions a cancellation cannot find its call.
        let finds = way.version == "2026-07-28"
            || what.starts_with("stdio")
            || what.starts_with("sessions");
        if finds && !what.starts_with("json") {
            let (sender, mut reports) = mpsc::channel(8);
            let options = CallOptions {
                progress: Some(sender),
                ..CallOptions::default()
            };
            let name = args(&json!({"name": what}));
            // The call is given up when it is known to run.
            let begun = tokio::select! {
                ended = client.call_tool_with("forever", &name, options) => panic!("{what}: {ended:?}"),
                report = soon(reports.recv()) => report.unwrap(),
            };
            assert_eq!(begun.message.as_deref(), Some("begun"), "{what}");
            let stopped = soon(client.call_tool("was_stopped", &name)).await;
            assert_eq!(stopped.unwrap(), "yes", "{what}");
        }
        soon(client.close()).await;
    }
}

#[tokio::test]
async fn tools_are_refreshed_when_the_official_server_says_they_changed() {
    for way in ways().await {
        let Way { what, client, .. } = &way;
        if way.pushes {
            let mut updates = client.updates();
            soon(client.call_tool("grow", &args(&json!({"name": way.version}))))
                .await
                .unwrap();
            let grown =
                updates.wait_for(|_| client.tools().iter().any(|tool| tool.name == way.version));
            let refreshed = tokio::time::timeout(PATIENCE, grown).await;
            assert!(refreshed.is_ok(), "{what}");
        }
        soon(client.close()).await;
    }
}

//! The client against a server that somebody published on npm. `scripts/npm.sh` installs it; says SKIPPED where it is not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ramen_client::{Client, Options, ServerConfig};
use serde_json::json;

use crate::{args, soon};

/// Node and the server's program.
fn everything() -> Option<(PathBuf, String)> {
    let cache = std::env::var_os("RAMEN_CACHE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = cache.or_else(|| home.map(|home| home.join(".cache/ramen")))?;
    let node = cache.join("npm/bin/node");
    let program =
        cache.join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    if !node.exists() || !program.exists() {
        ramen_skip::say("no server from npm; scripts/npm.sh installs one");
        return None;
    }
    Some((node, program.to_str()?.to_owned()))
}

#[tokio::test]
async fn a_published_typescript_server_answers_everything() {
    let Some((node, program)) = everything() else {
        return;
    };
    let node = node.to_str().expect("a path that is text");
    let config = ServerConfig::stdio(node, [program.as_str(), "stdio"]);
    let client = soon(Client::connect("everything", &config, &Options::default()))
        .await
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let names: Vec<_> = client
        .tools()
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert!(names.iter().any(|name| name == "echo"), "{names:?}");
    let echoed = soon(client.call_tool("echo", &args(&json!({"message": "hello"})))).await;
    assert!(echoed.unwrap().contains("hello"));
    let image = soon(client.call_tool("get-tiny-image", &args(&json!({})))).await;
    assert!(image.unwrap().contains("[image: image/png, "));
    let resources = soon(client.list_resources()).await.unwrap();
    assert!(!resources.is_empty());
    let text = soon(client.read_resource(&resources[0].uri)).await.unwrap();
    assert!(!text.is_empty());
    let prompts = soon(client.list_prompts()).await.unwrap();
    let simple = prompts
        .iter()
        .find(|prompt| prompt.arguments.is_empty())
        .unwrap();
    let prompt = soon(client.get_prompt(&simple.name, &BTreeMap::new())).await;
    assert!(!prompt.unwrap().is_empty());
    soon(client.close()).await;
}

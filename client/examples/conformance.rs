//! The client that the conformance suite of the protocol runs: `conformance client --command target/debug/examples/conformance`.
//!
//! It connects to the address in its last argument, lists the tools, calls each with arguments made from its schema (or
//! those that the suite names), and answers questions with their defaults.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use ramen_client::oauth::{Registered, SignIn};
use ramen_client::{CallOptions, Client, Elicit, EraChoice, Json, Options, ServerConfig, Tool};
use ramen_redact::Secret;
use serde_json::{Map, Value, json};
use url::Url;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter("ramen_client=debug")
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "failed");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let url = std::env::args().next_back().unwrap_or_default();
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let era = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").as_deref() {
        Ok(version) if version < "2026" => EraChoice::Legacy,
        _ => EraChoice::Auto,
    };
    let url = url
        .parse()
        .map_err(|_| "the last argument must be an address".to_owned())?;
    let config = ServerConfig::http(url).with_era(era);
    let options = Options {
        person: Some(Elicit::new(|question| async move { defaults(&question) })),
        sign_in: Some(sign_in(&context)),
        ..Options::default()
    };
    let client = Client::connect("conformance", &config, &options)
        .await
        .map_err(|error| error.chain())?;
    tracing::info!(scenario, version = %client.version(), "connected");
    let tools = client.tools();
    let calls: Vec<(String, Value)> = if let Some(calls) = context["toolCalls"].as_array() {
        calls
            .iter()
            .map(|call| {
                let name = call["name"].as_str().unwrap_or_default();
                (name.to_owned(), call["arguments"].clone())
            })
            .collect()
    } else {
        tools
            .iter()
            .map(|tool| (tool.name.clone(), arguments(tool, &tools)))
            .collect()
    };
    for (name, arguments) in calls {
        let options = CallOptions {
            timeout: Some(Duration::from_secs(20)),
            ..CallOptions::default()
        };
        let called = client
            .call_tool_with(&name, &Json::from(&arguments), options)
            .await;
        match called {
            Ok(text) => tracing::info!(name, text, "called"),
            Err(error) => tracing::warn!(name, error = error.chain(), "call failed"),
        }
    }
    client.close().await;
    Ok(())
}

/// A sign-in whose browser is a thread that follows the redirect.
fn sign_in(context: &Value) -> SignIn {
    let folder = std::env::temp_dir().join(format!("ramen-conformance-{}", std::process::id()));
    let client = Registered {
        id: context["client_id"].as_str().map(str::to_owned),
        secret: context["client_secret"].as_str().map(Secret::from),
        document: Url::parse("https://conformance-test.local/client-metadata.json").ok(),
    };
    let open = |address: &Url| {
        let address = address.clone();
        std::thread::spawn(move || {
            if let Some(callback) = get(&address).as_deref().and_then(location) {
                get(&callback);
            }
        });
        Ok(())
    };
    SignIn::new(folder.join("tokens.json"), open).with_client(client)
}

/// The head of the answer to a `GET` over plain HTTP.
fn get(address: &Url) -> Option<String> {
    let host = address.host_str()?;
    let port = address.port_or_known_default()?;
    let mut stream = std::net::TcpStream::connect((host, port)).ok()?;
    let target = &address[url::Position::BeforePath..url::Position::AfterQuery];
    let request =
        format!("GET {target} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn location(answer: &str) -> Option<Url> {
    let line = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location")
            .then_some(value.trim())
    });
    Url::parse(line?).ok()
}

/// Arguments that fit the properties a schema requires. The tool that wants a schema gets that of the other one, as it came.
fn arguments(tool: &Tool, tools: &[Tool]) -> Value {
    let other = tools.iter().find(|other| other.name != tool.name);
    if let ("json_schema_echo", Some(other)) = (tool.name.as_str(), other) {
        return json!({ "schema": other.input_schema.to::<Value>().unwrap_or_default() });
    }
    let schema: Value = tool.input_schema.to().unwrap_or_default();
    let mut out = Map::new();
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        let value = match schema["properties"][name]["type"].as_str() {
            Some("integer" | "number") => json!(7),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            Some("null") => Value::Null,
            _ => json!("text"),
        };
        out.insert(name.to_owned(), value);
    }
    Value::Object(out)
}

/// Accepts, with the default of each field that has one.
fn defaults(question: &Json) -> Json {
    let question: Value = question.to().unwrap_or_default();
    let fields = question["requestedSchema"]["properties"].as_object();
    let content: Map<String, Value> = fields
        .into_iter()
        .flatten()
        .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
        .collect();
    Json::from(&json!({ "action": "accept", "content": content }))
}

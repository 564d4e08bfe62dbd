//! The client: it does the steps and tells what came of them, as JSON.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, ClientConfig, GetPromptRequestParams, ProgressNotificationParam,
    ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::{ClientLifecycleMode, NotificationContext, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientServiceExt as _, RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::process::Command;

#[derive(serde::Deserialize)]
struct Order {
    url: Option<String>,
    #[serde(default)]
    headers: HashMap<String, String>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    env: HashMap<String, String>,
    era: String,
    text: String,
    mark: PathBuf,
    seen: PathBuf,
    /// A call that is given up is cancelled while we stay connected.
    told: bool,
}

/// Notes the progress that comes, and lets the code go on.
#[derive(Clone)]
struct Handler {
    file: PathBuf,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }

    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.seen
            .lock()
            .expect("nobody panics with it")
            .push(json!([told.progress, told.total, told.message]));
        let _ = std::fs::write(&self.file, told.progress.to_string());
    }
}

type Service = RunningService<RoleClient, Handler>;

pub(crate) async fn run() -> anyhow::Result<()> {
    let order: Order = serde_json::from_reader(std::io::stdin())?;
    let handler = Handler {
        file: order.seen.clone(),
        seen: Arc::default(),
    };
    let service = Arc::new(connect(&order, handler.clone()).await?);
    let version = service
        .peer_info()
        .map(|info| info.protocol_version.to_string());
    let told = json!({
        "version": version,
        "list": outcome(list(&service).await),
        "call": outcome(call(&service, "echo", json!({"text": order.text})).await.map(|result| text(&result))),
        "error": outcome(error(&service).await),
        "output": outcome(output(&service).await),
        "unknown": outcome(unknown(&service).await),
        "progress": outcome(progress(&service, &order, &handler).await),
        "resources": outcome(resources(&service).await),
        "prompts": outcome(prompts(&service).await),
        "cancel": outcome(cancel(&service, &order).await),
    });
    if let Some(service) = Arc::into_inner(service) {
        service.cancel().await?;
    }
    println!("{told}");
    Ok(())
}

/// What the tests read instead of a value when a step failed.
fn outcome(step: anyhow::Result<Value>) -> Value {
    step.unwrap_or_else(|error| json!({"failed": format!("{error:#}")}))
}

async fn connect(order: &Order, handler: Handler) -> anyhow::Result<Service> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match order.era.as_str() {
        "legacy" => ClientLifecycleMode::Initialize,
        "auto" => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: None,
        },
        _ => ClientLifecycleMode::Discover { preferred_versions },
    };
    if let Some(url) = &order.url {
        let mut headers = HashMap::new();
        for (name, value) in &order.headers {
            headers.insert(
                name.parse::<HeaderName>()?,
                HeaderValue::from_str(value).context("a header of the order")?,
            );
        }
        let config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
        let transport = StreamableHttpClientTransport::from_config(config.custom_headers(headers));
        return Ok(handler.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let (program, args) = order
        .command
        .split_first()
        .context("neither url nor command")?;
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&order.env);
    let transport = TokioChildProcess::new(command)?;
    Ok(handler.serve_with_lifecycle(transport, lifecycle).await?)
}

async fn call(service: &Service, name: &'static str, arguments: Value) -> anyhow::Result<Value> {
    let Value::Object(arguments) = arguments else {
        bail!("arguments are an object");
    };
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    Ok(serde_json::to_value(service.call_tool(params).await?)?)
}

fn text(result: &Value) -> Value {
    result["content"][0]["text"].clone()
}

/// One field of each, in order.
fn each(things: impl serde::Serialize, field: &str) -> anyhow::Result<Value> {
    let mut values: Vec<String> = Vec::new();
    for thing in serde_json::to_value(things)?
        .as_array()
        .into_iter()
        .flatten()
    {
        values.push(thing[field].as_str().context("a text")?.to_owned());
    }
    values.sort();
    Ok(json!(values))
}

async fn list(service: &Service) -> anyhow::Result<Value> {
    each(service.list_all_tools().await?, "name")
}

async fn error(service: &Service) -> anyhow::Result<Value> {
    let result = call(service, "raises", json!({"text": "no such city"})).await?;
    Ok(json!([result["isError"], text(&result)]))
}

async fn output(service: &Service) -> anyhow::Result<Value> {
    let terms = json!({"a": 6, "b": 7});
    let sum = call(service, "sum", terms.clone()).await?;
    let both = call(service, "both", terms).await?;
    Ok(json!([
        sum["structuredContent"],
        both["structuredContent"],
        text(&sum)
    ]))
}

async fn unknown(service: &Service) -> anyhow::Result<Value> {
    let params = CallToolRequestParams::new("no_such_tool");
    match service.call_tool(params).await {
        Err(ServiceError::McpError(error)) => Ok(json!(error.code.0)),
        other => bail!("not refused by the protocol: {other:?}"),
    }
}

async fn progress(service: &Service, order: &Order, handler: &Handler) -> anyhow::Result<Value> {
    std::fs::write(&order.seen, "")?;
    // Other calls have a token of rmcp's own, too.
    handler.seen.lock().expect("nobody panics with it").clear();
    let result = call(service, "paced", json!({"path": order.seen, "count": 3})).await?;
    let seen = handler.seen.lock().expect("nobody panics with it").clone();
    Ok(json!([seen, text(&result)]))
}

async fn resources(service: &Service) -> anyhow::Result<Value> {
    let listed = each(service.list_all_resources().await?, "uri")?;
    let mut read = Vec::new();
    for uri in ["probe://notes", "probe://picture"] {
        let params = ReadResourceRequestParams::new(uri);
        read.push(serde_json::to_value(service.read_resource(params).await?)?);
    }
    Ok(json!([
        listed,
        read[0]["contents"][0]["text"],
        read[1]["contents"][0]["blob"]
    ]))
}

async fn prompts(service: &Service) -> anyhow::Result<Value> {
    let listed = each(service.list_all_prompts().await?, "name")?;
    let Value::Object(arguments) = json!({"name": "Ada"}) else {
        bail!("it is an object");
    };
    let params = GetPromptRequestParams::new("greet").with_arguments(arguments);
    let got = serde_json::to_value(service.get_prompt(params).await?)?;
    Ok(json!([listed, got["messages"][0]["content"]["text"]]))
}

async fn cancel(service: &Arc<Service>, order: &Order) -> anyhow::Result<Value> {
    let started = tokio::spawn({
        let (service, mark) = (service.clone(), order.mark.clone());
        async move {
            call(&service, "patient", json!({"path": mark}))
                .await
                .map(drop)
        }
    });
    holds(&order.mark, "started").await;
    started.abort();
    let ended = match started.await {
        Err(gone) if gone.is_cancelled() => "given up",
        _ => "answered",
    };
    if order.told {
        holds(&order.mark, "cancelled").await;
    }
    Ok(json!(ended))
}

/// Waits until the file holds the text.
async fn holds(path: &PathBuf, text: &str) {
    while std::fs::read_to_string(path).ok().as_deref() != Some(text) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

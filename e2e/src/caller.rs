//! A caller of a worker, over gRPC and with a key.

use std::{fmt, time::Duration};

use anyhow::Context as _;
use ramen_proto::v1::{JsonRpc, mcp_client::McpClient};
use serde_json::{Value, json};
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

/// The gRPC port of workers.
pub const GRPC: u16 = 50051;
/// For one call, whatever the machine has to do besides.
const LIMIT: Duration = Duration::from_secs(30);

/// A connection to one worker.
#[derive(Clone)]
pub struct Caller {
    channel: Channel,
    bearer: MetadataValue<Ascii>,
}

/// Why a call did not give a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// By gRPC: no key, no address, too busy, no connection, …
    Status(Code, String),
    /// By JSON-RPC: no such tool, bad arguments.
    Rpc(Value),
    /// By the tool: `isError`.
    Tool(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code, message) => write!(f, "{code:?}: {message}"),
            Self::Rpc(error) => write!(f, "{error}"),
            Self::Tool(text) => write!(f, "the tool says: {text}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status.code(), status.message().to_owned())
    }
}

impl Caller {
    /// Connects to `host:port`, at once.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn connect(address: &str, key: &str) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(Duration::from_secs(5))
            .connect()
            .await
            .with_context(|| format!("connecting to {address}"))?;
        Ok(Self {
            channel,
            bearer: format!("Bearer {key}").parse()?,
        })
    }

    /// One JSON-RPC request; gives its `result`.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, Refusal> {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = Request::new(JsonRpc {
            body: message.to_string().into_bytes().into(),
        });
        request
            .metadata_mut()
            .insert("authorization", self.bearer.clone());
        request.set_timeout(LIMIT);
        let mut client = McpClient::new(self.channel.clone());
        // The limit of the request counts from when it goes out. Before, it waits for a connection, and to a pod that is gone each
        // request tries in vain for one, one after the other.
        let answer = tokio::time::timeout(LIMIT, client.call(request))
            .await
            .map_err(|_| Status::unavailable("no connection in time"))??;
        let body = answer.into_inner().body;
        let mut answer: Value = serde_json::from_slice(&body)
            .map_err(|error| Refusal::Rpc(json!(format!("no JSON: {error}"))))?;
        if answer["error"].is_null() {
            return Ok(answer["result"].take());
        }
        Err(Refusal::Rpc(answer["error"].take()))
    }

    /// Calls a tool; gives the text of its first content.
    ///
    /// # Errors
    /// When it is refused or fails.
    pub async fn tool(&self, name: &str, arguments: Value) -> Result<String, Refusal> {
        let params = json!({ "name": name, "arguments": arguments });
        let result = self.ask("tools/call", params).await?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        if result["isError"] == true {
            return Err(Refusal::Tool(text.to_owned()));
        }
        Ok(text.to_owned())
    }

    /// The names of its tools, in order.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn tools(&self) -> Result<Vec<String>, Refusal> {
        let listed = self.ask("tools/list", json!({})).await?;
        let tools = listed["tools"].as_array().into_iter().flatten();
        Ok(tools
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect())
    }
}

//! A caller of a gateway: MCP over HTTP, with a key. Each request is a connection of its own, so that a test says which
//! replica gets it.

use std::{fmt, time::Duration};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::http::{Answer, request};

/// For one call, whatever the machine has to do besides.
const LIMIT: Duration = Duration::from_secs(30);

/// A group at one address of a gateway.
#[derive(Debug, Clone)]
pub struct HttpCaller {
    base: String,
    path: String,
    key: String,
    headers: Vec<(String, String)>,
}

/// Why a call did not give a result.
#[derive(Debug, Clone, PartialEq)]
pub enum HttpRefusal {
    /// There was no whole answer.
    Lost(String),
    /// By HTTP, without a JSON-RPC error.
    Status(u16),
    /// By JSON-RPC: status and error.
    Rpc(u16, Value),
    /// By the tool: `isError`.
    Tool(String),
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "no answer: {why}"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Rpc(status, error) => write!(f, "status {status}: {error}"),
            Self::Tool(text) => write!(f, "the tool says: {text}"),
        }
    }
}

impl std::error::Error for HttpRefusal {}

impl HttpCaller {
    /// Of a group, at `http://host:port`.
    pub fn new(base: &str, namespace: &str, group: &str, key: &str) -> Self {
        Self {
            base: base.to_owned(),
            path: format!("/{namespace}/{group}/mcp"),
            key: key.to_owned(),
            headers: Vec::new(),
        }
    }

    /// The same at another address.
    #[must_use]
    pub fn at(&self, base: &str) -> Self {
        Self {
            base: base.to_owned(),
            ..self.clone()
        }
    }

    /// The same at another path.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    async fn send(&self, message: &Value) -> anyhow::Result<Answer> {
        let bearer = format!("Bearer {}", self.key);
        let mut headers = vec![
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let more = self.headers.iter();
        headers.extend(more.map(|(name, value)| (name.as_str(), value.as_str())));
        let url = format!("{}{}", self.base, self.path);
        let body = message.to_string();
        let asked = request("POST", &url, &headers, body.as_bytes());
        // Of a pod that is gone nothing may come at all, not even an end.
        let answer = tokio::time::timeout(LIMIT, asked).await;
        answer.context("no answer in time")?
    }

    /// One JSON-RPC request; gives its `result`.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, HttpRefusal> {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.send(&message).await;
        let answer = answer.map_err(|error| HttpRefusal::Lost(format!("{error:#}")))?;
        let body = serde_json::from_str::<Value>(&answer.body).ok();
        // What the gate refuses is answered without JSON-RPC.
        let Some(mut body) = body.filter(|body| body["jsonrpc"] == "2.0") else {
            return Err(match answer.status {
                200 => HttpRefusal::Lost("half of an answer".to_owned()),
                status => HttpRefusal::Status(status),
            });
        };
        if !body["error"].is_null() {
            return Err(HttpRefusal::Rpc(answer.status, body["error"].take()));
        }
        Ok(body["result"].take())
    }

    /// Calls a tool; gives the text of its first content.
    ///
    /// # Errors
    /// When it is refused or fails.
    pub async fn tool(&self, name: &str, arguments: Value) -> Result<String, HttpRefusal> {
        let params = json!({ "name": name, "arguments": arguments });
        let result = self.ask("tools/call", params).await?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        if result["isError"] == true {
            return Err(HttpRefusal::Tool(text.to_owned()));
        }
        Ok(text.to_owned())
    }
}

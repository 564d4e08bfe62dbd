//! The stub of a worker: lists twenty tools for whichever group asks, at once, and keeps subscriptions open. What is
//! measured with it is the gateway alone.

use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Tools of a list.
pub(crate) const TOOLS: usize = 20;

struct Stub {
    /// The list, as it stands behind the id.
    list: String,
}

/// A tool as packages describe them: a few hundred bytes.
pub(crate) fn tool(n: usize) -> Value {
    json!({
        "name": format!("tool_{n}"),
        "description": "Looks something up, says what it found, and tells what to do when nothing was found.",
        "inputSchema": {"type": "object", "required": ["query"], "additionalProperties": false, "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        }},
    })
}

impl Stub {
    fn answer(&self, body: &[u8]) -> Result<JsonRpc, Status> {
        let message: Value = serde_json::from_slice(body)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#,
            message["id"], self.list
        );
        Ok(JsonRpc {
            body: Bytes::from(body),
        })
    }
}

#[tonic::async_trait]
impl Mcp for Stub {
    async fn call(&self, request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        self.answer(&request.get_ref().body).map(Response::new)
    }

    async fn session(
        &self,
        request: Request<Streaming<JsonRpc>>,
    ) -> Result<Response<tonic::codegen::BoxStream<JsonRpc>>, Status> {
        let mut incoming = request.into_inner();
        let (out, messages) = mpsc::channel(4);
        let first = incoming.message().await?;
        let message: Value = first
            .and_then(|first| serde_json::from_slice(&first.body).ok())
            .unwrap_or_default();
        if message["method"] == "subscriptions/listen" {
            tokio::spawn(async move {
                let acknowledged = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}});
                let body = Bytes::from(acknowledged.to_string());
                let _ = out.send(Ok(JsonRpc { body })).await;
                out.closed().await;
            });
        } else {
            let _ = out.send(self.answer(message.to_string().as_bytes())).await;
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

/// Serves at all addresses of this machine: each address of 127.0.0.0/8 is another worker to the gateway.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    let tools: Vec<Value> = (0..TOOLS).map(tool).collect();
    let stub = Stub {
        list: json!({ "tools": tools }).to_string(),
    };
    // Nobody else's machine gets an answer.
    let here = TcpListenerStream::new(listener).filter(|stream| {
        let peer = stream
            .as_ref()
            .ok()
            .and_then(|stream| stream.peer_addr().ok());
        peer.is_some_and(|peer| peer.ip().is_loopback())
    });
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .add_service(McpServer::new(stub))
        .serve_with_incoming(here)
        .await?;
    Ok(())
}

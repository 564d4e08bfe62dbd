//! The ceiling: the same transport and message, answered by a calculator in Rust. No gate, no schema, no Python.

use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use serde::Deserialize;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

struct Calculator;

#[derive(Deserialize)]
struct Message {
    id: u64,
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Arguments {
    var1: f64,
    var2: f64,
    func: String,
}

#[tonic::async_trait]
impl Mcp for Calculator {
    async fn call(&self, request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        let message: Message = serde_json::from_slice(&request.get_ref().body)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let Arguments { var1, var2, func } = message.params.arguments;
        let value = match func.as_str() {
            "add" => var1 + var2,
            "subtract" => var1 - var2,
            "multiply" => var1 * var2,
            _ => var1 / var2,
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":"{value}"}}],"isError":false}}}}"#,
            message.id
        );
        Ok(Response::new(JsonRpc {
            body: Bytes::from(body),
        }))
    }
}

pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .add_service(McpServer::new(Calculator))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

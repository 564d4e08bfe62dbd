//! What listens at the addresses of the played worker pods: it says that it has loaded whatever it is told, that it serves what
//! its group is to serve, and lists the tools that every deploy finds.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use ramen_e2e::GRPC;
use ramen_e2e::player::Served;
use ramen_proto::v1::admin_server::{Admin, AdminServer};
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use ramen_proto::v1::{JsonRpc, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// The tools of every group that serves.
pub(crate) const TOOLS: [&str; 10] = [
    "add", "ask", "book", "cancel", "find", "list", "move", "price", "report", "send",
];

#[derive(Clone)]
struct Paper(Arc<Served>);

#[tonic::async_trait]
impl Admin for Paper {
    async fn reload(
        &self,
        _request: Request<ReloadRequest>,
    ) -> Result<Response<ReloadResponse>, Status> {
        Ok(Response::new(ReloadResponse {
            generation: 1,
            tools: u32::try_from(TOOLS.len()).unwrap_or_default(),
            ..ReloadResponse::default()
        }))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let status = self.0.status(request.metadata()).await;
        status.map(Response::new)
    }
}

#[tonic::async_trait]
impl Mcp for Paper {
    async fn call(&self, _request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        let tools = TOOLS.map(
            |name| json!({ "name": name, "description": "", "inputSchema": { "type": "object" } }),
        );
        let answer = json!({ "jsonrpc": "2.0", "id": 0, "result": { "tools": tools } });
        Ok(Response::new(JsonRpc {
            body: answer.to_string().into_bytes().into(),
        }))
    }
}

/// Listens until the set is dropped: all pods have this machine's addresses, so one listener is every pod.
pub(crate) async fn listen(client: &Client) -> anyhow::Result<JoinSet<()>> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, GRPC)))
        .await
        .context("the port of workers is taken")?;
    let paper = Paper(Arc::new(Served::watch(client, None)));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let served = tonic::transport::Server::builder()
            .add_service(AdminServer::new(paper.clone()))
            .add_service(McpServer::new(paper))
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
            .await;
        if let Err(error) = served {
            eprintln!("bench: the played workers ended: {error}");
        }
    });
    Ok(tasks)
}

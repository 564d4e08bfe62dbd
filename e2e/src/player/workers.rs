//! What listens at the addresses of worker pods on paper: it says that it has loaded whatever it is told, lists the tools
//! that the deploy found, and remembers what it was told.

use std::{
    collections::HashMap,
    io,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use ramen_group::{DesiredState, LayerRef};
use ramen_proto::v1::{
    self as proto, JsonRpc, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse,
    admin_server::{Admin, AdminServer},
    mcp_server::{Mcp, McpServer},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

use super::address;
use crate::caller::GRPC;

/// Addresses that are tried before none counts as free.
const TRIES: usize = 1024;

/// The worker pods of a player. Cheap to clone.
#[derive(Clone, Default)]
pub struct Workers(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// What each pod was told, the newest last.
    told: HashMap<Name, Vec<DesiredState>>,
    /// What deploys found, by the tree of their code.
    offers: HashMap<String, Offer>,
}

/// Namespace and name of a pod.
type Name = (String, String);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Offer {
    tools: Vec<String>,
    resources: u32,
    prompts: u32,
}

impl Offer {
    /// Of a report as a deploy job hands it over.
    fn of(report: &Value) -> Self {
        let mut offer = Self::default();
        for package in report["packages"].as_array().into_iter().flatten() {
            match package["kind"].as_str() {
                _ if package["ok"] != true => {}
                Some("resource") => offer.resources += 1,
                Some("prompt") => offer.prompts += 1,
                _ => {
                    let name = package["name"].as_str().unwrap_or_default();
                    offer.tools.push(name.to_owned());
                }
            }
        }
        offer
    }
}

impl Workers {
    /// What a pod was told since it started: by its file at first, then by the operator.
    pub fn told(&self, namespace: &str, pod: &str) -> Vec<DesiredState> {
        let name = (namespace.to_owned(), pod.to_owned());
        self.known().told.get(&name).cloned().unwrap_or_default()
    }

    /// Notes what a deploy of a tree found.
    pub(super) fn found(&self, tree: &str, report: &Value) {
        let offer = Offer::of(report);
        self.known().offers.insert(tree.to_owned(), offer);
    }

    /// A worker at an address of its own, which nobody else has, that has read its file.
    pub(super) async fn start(&self, pod: &Pod, desired: DesiredState) -> anyhow::Result<Worker> {
        let (listener, address) = listen().await?;
        let pod = (pod.namespace().unwrap_or_default(), pod.name_any());
        self.known().told.insert(pod.clone(), vec![desired]);
        Ok(Worker {
            listener,
            address,
            answers: Answers {
                workers: self.clone(),
                pod,
            },
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens, and does not answer yet.
pub(super) struct Worker {
    listener: TcpListener,
    pub(super) address: Ipv4Addr,
    answers: Answers,
}

impl Worker {
    /// Answers until it is dropped.
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        tonic::transport::Server::builder()
            .add_service(AdminServer::new(self.answers.clone()))
            .add_service(McpServer::new(self.answers))
            .serve_with_incoming(TcpIncoming::from(self.listener).with_nodelay(Some(true)))
            .await
            .context("a worker on paper ended")
    }
}

async fn listen() -> anyhow::Result<(TcpListener, Ipv4Addr)> {
    for _ in 0..TRIES {
        let address = address();
        match TcpListener::bind((address, GRPC)).await {
            Ok(listener) => return Ok((listener, address)),
            // Addresses come again after a while: an older pod has it still.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).with_context(|| format!("listening at {address}")),
        }
    }
    anyhow::bail!("no address for a pod is free")
}

#[derive(Clone)]
struct Answers {
    workers: Workers,
    pod: Name,
}

impl Answers {
    /// What it was told last.
    fn last(&self) -> Option<DesiredState> {
        let known = self.workers.known();
        known.told.get(&self.pod)?.last().cloned()
    }

    fn offer(&self) -> Offer {
        let tree = self.last().map(|desired| desired.code.key);
        let known = self.workers.known();
        let offer = tree.and_then(|tree| known.offers.get(&tree).cloned());
        offer.unwrap_or_default()
    }
}

fn desired(message: proto::DesiredState) -> Option<DesiredState> {
    let layer = |layer: proto::Layer| LayerRef {
        key: layer.key,
        digest: layer.digest,
        size: layer.size,
    };
    Some(DesiredState {
        revision: message.revision,
        code: layer(message.code?),
        deps: message.deps.map(layer),
        python: message.python,
        exclude: message.exclude,
    })
}

#[tonic::async_trait]
impl Admin for Answers {
    async fn reload(
        &self,
        request: Request<ReloadRequest>,
    ) -> Result<Response<ReloadResponse>, Status> {
        let wanted = request.into_inner().desired.and_then(desired);
        let wanted = wanted.ok_or_else(|| Status::invalid_argument("nothing is named"))?;
        let told = {
            let mut known = self.workers.known();
            let told = known.told.entry(self.pod.clone()).or_default();
            told.push(wanted);
            told.len()
        };
        let offer = self.offer();
        Ok(Response::new(ReloadResponse {
            generation: told as u64,
            tools: u32::try_from(offer.tools.len()).unwrap_or(u32::MAX),
            resources: offer.resources,
            prompts: offer.prompts,
        }))
    }

    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let revision = self.last().map(|desired| desired.revision);
        let revision = revision.unwrap_or_default();
        Ok(Response::new(StatusResponse {
            desired_revision: revision.clone(),
            revision,
            generation: 1,
            health: "SERVING".to_owned(),
            ..StatusResponse::default()
        }))
    }
}

#[tonic::async_trait]
impl Mcp for Answers {
    async fn call(&self, _request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        let tools = self.offer().tools.into_iter();
        let tools: Vec<_> = tools
            .map(|name| json!({ "name": name, "description": "", "inputSchema": { "type": "object" } }))
            .collect();
        let answer = json!({ "jsonrpc": "2.0", "id": 0, "result": { "tools": tools } });
        Ok(Response::new(JsonRpc {
            body: answer.to_string().into_bytes().into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_offers_what_the_deploy_found_and_serves() {
        let report = json!({ "packages": [
            { "kind": "tool", "name": "say", "ok": true }, { "kind": "tool", "name": "bad", "ok": false },
            { "kind": "prompt", "name": "ask", "ok": true },
        ]});
        let wanted = Offer {
            tools: vec!["say".to_owned()],
            resources: 0,
            prompts: 1,
        };
        assert_eq!(Offer::of(&report), wanted);
    }
}

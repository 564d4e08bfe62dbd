//! `ramen.v1.Admin`. The gate has judged the admin key and the address before.

use std::sync::Arc;

use ramen_group::{DesiredState, LayerRef};
use ramen_proto::REASON_HEADER;
use ramen_proto::v1::admin_server::{Admin, AdminServer};
use ramen_proto::v1::{
    self as proto, HostStatus, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse,
};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use super::Front;

pub(super) struct Service(Arc<Front>);

pub(super) fn server(front: Arc<Front>) -> AdminServer<Service> {
    AdminServer::new(Service(front)).max_decoding_message_size(1024 * 1024)
}

#[tonic::async_trait]
impl Admin for Service {
    async fn reload(
        &self,
        request: Request<ReloadRequest>,
    ) -> Result<Response<ReloadResponse>, Status> {
        let desired = desired(request.into_inner().desired)?;
        let manager = Arc::clone(&self.0.manager);
        // In a task of its own: a caller that goes away does not stop a load half way.
        let loaded = tokio::spawn(async move { manager.reload(desired).await }).await;
        match loaded {
            Ok(Ok(generation)) => {
                let group = generation.catalog.group();
                let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                Ok(Response::new(ReloadResponse {
                    generation: generation.number,
                    tools: count(group.tools.len()),
                    resources: count(group.resources.len()),
                    prompts: count(group.prompts.len()),
                }))
            }
            Ok(Err(refused)) => {
                // Its own text: another load may have been refused since.
                let mut status = Status::failed_precondition(refused.message);
                let reason = MetadataValue::from_static(refused.error.reason().as_str());
                status.metadata_mut().insert(REASON_HEADER, reason);
                Err(status)
            }
            Err(_) => Err(Status::internal("the load was stopped")),
        }
    }

    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let manager = &self.0.manager;
        let (desired_revision, last_error) = manager.wanted();
        let health = if *manager.serving().borrow() {
            "SERVING"
        } else {
            "NOT_SERVING"
        };
        let in_flight = u32::try_from(self.0.gate.in_flight.taken()).unwrap_or(u32::MAX);
        let current = manager.current();
        let (revision, generation, hosts) = match &current {
            None => (String::new(), 0, Vec::new()),
            Some(current) => {
                let hosts = current.pool.status().into_iter().map(|seat| HostStatus {
                    pid: seat.pid,
                    generation: current.number,
                    in_flight: u32::try_from(seat.in_flight).unwrap_or(u32::MAX),
                    restarts: seat.restarts,
                    rss_bytes: seat.rss,
                    state: seat.state.to_owned(),
                });
                (
                    current.desired.revision.clone(),
                    current.number,
                    hosts.collect(),
                )
            }
        };
        Ok(Response::new(StatusResponse {
            revision,
            generation,
            health: health.to_owned(),
            in_flight,
            hosts,
            last_error,
            desired_revision,
            serving: current.as_ref().map(|current| told(&current.desired)),
        }))
    }
}

fn told(desired: &DesiredState) -> proto::DesiredState {
    let layer = |layer: &LayerRef| proto::Layer {
        key: layer.key.clone(),
        digest: layer.digest.clone(),
        size: layer.size,
    };
    proto::DesiredState {
        revision: desired.revision.clone(),
        code: Some(layer(&desired.code)),
        deps: desired.deps.as_ref().map(layer),
        python: desired.python.clone(),
        exclude: desired.exclude.clone(),
    }
}

fn desired(desired: Option<proto::DesiredState>) -> Result<DesiredState, Status> {
    let desired = desired.ok_or_else(|| Status::invalid_argument("`desired` is missing"))?;
    let layer = |layer: proto::Layer| LayerRef {
        key: layer.key,
        digest: layer.digest,
        size: layer.size,
    };
    let code = desired
        .code
        .ok_or_else(|| Status::invalid_argument("`desired.code` is missing"))?;
    if desired.python.is_empty() {
        return Err(Status::invalid_argument("`desired.python` is missing"));
    }
    Ok(DesiredState {
        revision: desired.revision,
        code: layer(code),
        deps: desired.deps.map(layer),
        python: desired.python,
        exclude: desired.exclude,
    })
}

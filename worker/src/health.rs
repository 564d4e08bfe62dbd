//! `grpc.health.v1.Health`: needs no key, no address, no place and no host.

use std::pin::Pin;

use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::names;

/// Answers from one flag: whether packages are loaded and a host is up.
pub(crate) struct Checks {
    serving: watch::Receiver<bool>,
    stopping: watch::Receiver<bool>,
}

impl Checks {
    pub(crate) fn server(
        serving: watch::Receiver<bool>,
        stopping: watch::Receiver<bool>,
    ) -> HealthServer<Self> {
        HealthServer::new(Self { serving, stopping })
    }

    /// Ends when the worker is to end: a client that watches must not hold that up.
    fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stopping.clone();
        async move {
            // Without its sender the worker has ended already.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }
}

fn answer(serving: bool) -> HealthCheckResponse {
    let status = if serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    HealthCheckResponse {
        status: status.into(),
    }
}

#[tonic::async_trait]
impl Health for Checks {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match request.get_ref().service.as_str() {
            "" | names::MCP_SERVICE => Ok(Response::new(answer(*self.serving.borrow()))),
            // It answers, so it is alive.
            names::ADMIN_SERVICE => Ok(Response::new(answer(true))),
            _ => Err(Status::not_found("no such service")),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let stream: Self::WatchStream = match request.get_ref().service.as_str() {
            "" | names::MCP_SERVICE => Box::pin(
                WatchStream::new(self.serving.clone())
                    .map(|serving| Ok(answer(serving)))
                    .take_until(self.stopped())
                    .chain(futures::stream::iter([Ok(answer(false))])),
            ),
            names::ADMIN_SERVICE => Box::pin(
                futures::stream::iter([Ok(answer(true))])
                    .chain(futures::stream::pending())
                    .take_until(self.stopped()),
            ),
            _ => {
                let unknown = HealthCheckResponse {
                    status: ServingStatus::ServiceUnknown.into(),
                };
                Box::pin(
                    futures::stream::iter([Ok(unknown)])
                        .chain(futures::stream::pending())
                        .take_until(self.stopped()),
                )
            }
        };
        Ok(Response::new(stream))
    }
}

//! `/healthz` (the process lives), `/readyz` (kind present, first lists done) and `/metrics`. Readiness
//! never depends on a repository or on one group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What the pages tell.
#[derive(Debug, Clone, Default)]
pub struct Pages {
    ready: Arc<AtomicBool>,
    registry: Arc<Registry>,
}

impl Pages {
    /// Pages over these metrics; not ready yet.
    pub fn new(registry: Registry) -> Self {
        Self {
            ready: Arc::default(),
            registry: Arc::new(registry),
        }
    }

    /// Says whether the operator is ready.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// The routes.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }

    /// Answers until told to stop.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        axum::serve(listener, self.routes())
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
    }
}

async fn readyz(State(pages): State<Pages>) -> impl IntoResponse {
    if pages.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the kind McpGroup or a first list is missing\n",
        )
    }
}

async fn metrics(State(pages): State<Pages>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &pages.registry) {
        Ok(()) => (
            StatusCode::OK,
            [(
                header::CONTENT_TYPE,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            text,
        ),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            error.to_string(),
        ),
    }
}

//! One worker, asked over gRPC.

use std::time::Duration;

use ramen_group::{DesiredState, LayerRef, Reason};
use ramen_proto::REASON_HEADER;
use ramen_proto::v1::admin_client::AdminClient;
use ramen_proto::v1::mcp_client::McpClient;
use ramen_proto::v1::{
    self as proto, JsonRpc, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse,
};
use ramen_redact::{Secret, chain};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::push::Target;

/// For a connection: a pod that does not answer that fast is left to its `ConfigMap`.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// For one call of the smoke test.
const CALL_TIME: Duration = Duration::from_secs(10);
/// Largest answer.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
const ADMIN_KEY_HEADER: &str = "x-ramen-admin-key";

/// How one pod took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nobody answers, or not in time.
    Unreachable(String),
    /// It answers and does not serve the revision.
    Refused {
        /// As the worker names it.
        reason: Reason,
        /// In its words.
        message: String,
        /// Whether another try may help.
        transient: bool,
    },
}

/// A connection to one worker.
pub(super) struct Worker(Channel);

impl Worker {
    pub(super) async fn connect(target: &Target) -> Result<Self, Fault> {
        let unreachable = |error: &dyn std::error::Error| Fault::Unreachable(chain(error));
        let endpoint = Endpoint::from_shared(format!("http://{}", target.address))
            .map_err(|error| unreachable(&error))?
            .connect_timeout(CONNECT_TIME)
            .tcp_nodelay(true);
        let connected = tokio::time::timeout(CONNECT_TIME, endpoint.connect()).await;
        match connected {
            Ok(Ok(channel)) => Ok(Self(channel)),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(_) => Err(Fault::Unreachable("no connection in time".to_owned())),
        }
    }

    /// Loads a revision; returns when it serves.
    pub(super) async fn reload(
        &self,
        desired: &DesiredState,
        key: &Secret,
        timeout: Duration,
    ) -> Result<ReloadResponse, Fault> {
        let mut request = Request::new(ReloadRequest {
            desired: Some(message(desired)),
        });
        request
            .metadata_mut()
            .insert(ADMIN_KEY_HEADER, value(key.expose())?);
        // Beyond ours: its end would look as if nobody answered.
        request.set_timeout(timeout + CALL_TIME);
        let mut admin = AdminClient::new(self.0.clone());
        let answered = tokio::time::timeout(timeout, admin.reload(request)).await;
        match answered {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(fault(&status)),
            Err(_) => Err(Fault::Refused {
                reason: Reason::ReloadFailed,
                message: format!("the revision was not loaded within {} s", timeout.as_secs()),
                transient: true,
            }),
        }
    }

    /// What the worker says of itself.
    pub(super) async fn status(&self, key: &Secret) -> Result<StatusResponse, Fault> {
        let mut request = Request::new(StatusRequest {});
        request
            .metadata_mut()
            .insert(ADMIN_KEY_HEADER, value(key.expose())?);
        request.set_timeout(2 * CALL_TIME);
        let mut admin = AdminClient::new(self.0.clone());
        match tokio::time::timeout(CALL_TIME, admin.status(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(fault(&status)),
            Err(_) => Err(Fault::Unreachable("no answer in time".to_owned())),
        }
    }

    /// One JSON-RPC message with a caller's key.
    pub(super) async fn call(&self, body: Vec<u8>, key: &Secret) -> Result<Vec<u8>, Status> {
        let mut request = Request::new(JsonRpc { body: body.into() });
        let bearer = format!("Bearer {}", key.expose());
        let bearer = value(&bearer).map_err(|_| Status::unauthenticated("the key is no text"))?;
        request.metadata_mut().insert("authorization", bearer);
        request.set_timeout(CALL_TIME);
        let mut mcp = McpClient::new(self.0.clone())
            .max_decoding_message_size(MAX_ANSWER + 1024)
            .max_encoding_message_size(MAX_ANSWER);
        match tokio::time::timeout(CALL_TIME, mcp.call(request)).await {
            Ok(answered) => Ok(answered?.into_inner().body.into()),
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        }
    }
}

fn value(text: &str) -> Result<MetadataValue<Ascii>, Fault> {
    let mut value: MetadataValue<Ascii> = text.parse().map_err(|_| Fault::Refused {
        reason: Reason::Internal,
        message: "the key cannot be sent as metadata".to_owned(),
        transient: false,
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a status means. Text of a worker is redacted there.
fn fault(status: &Status) -> Fault {
    let named = status
        .metadata()
        .get(REASON_HEADER)
        .and_then(|reason| reason.to_str().ok())
        .and_then(|reason| serde_json::from_value(reason.into()).ok())
        .filter(|reason| *reason != Reason::Unknown);
    let refused = |reason, transient| Fault::Refused {
        reason,
        message: status.message().chars().take(2000).collect(),
        transient,
    };
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument => {
            let reason = named.unwrap_or(Reason::ReloadFailed);
            // What is wrong with the packages stays wrong; disks, networks and layers change.
            refused(reason, reason != Reason::ReloadFailed)
        }
        Code::Unauthenticated | Code::PermissionDenied => Fault::Refused {
            reason: Reason::ReloadFailed,
            message: format!(
                "the worker does not let the operator in ({}): {}",
                status.code(),
                status.message()
            ),
            // A key that was just made arrives in the pod a little later.
            transient: true,
        },
        Code::Unavailable | Code::Cancelled | Code::Unknown => {
            Fault::Unreachable(format!("{}: {}", status.code(), status.message()))
        }
        Code::DeadlineExceeded => refused(Reason::ReloadFailed, true),
        _ => refused(named.unwrap_or(Reason::Internal), true),
    }
}

/// Whether a worker that says this of itself serves it. Another commit of the same tree is the same by another name.
pub(super) fn serves(status: &StatusResponse, desired: &DesiredState) -> bool {
    match &status.serving {
        Some(serving) => {
            let revision = serving.revision.clone();
            *serving
                == proto::DesiredState {
                    revision,
                    ..message(desired)
                }
        }
        // One of an earlier version names the revision alone.
        None => status.revision == desired.revision,
    }
}

fn message(desired: &DesiredState) -> proto::DesiredState {
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

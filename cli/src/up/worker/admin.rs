//! `ramen.v1.Admin` of one worker.

use std::time::Duration;

use ramen_group::{DesiredState, LayerRef};
use ramen_proto::code_name;
use ramen_proto::v1;
use ramen_proto::v1::admin_client::AdminClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn admin(address: &str) -> Result<AdminClient<Channel>, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Status::internal(format!("bad address {address}: {error}")))?;
    Ok(AdminClient::new(
        endpoint.connect_timeout(CONNECT_LIMIT).connect_lazy(),
    ))
}

pub(super) fn keyed<T>(message: T, key: &str, limit: Duration) -> Result<Request<T>, Status> {
    let mut request = Request::new(message);
    let mut value: tonic::metadata::MetadataValue<_> = key
        .parse()
        .map_err(|_| Status::internal("the admin key is no header value"))?;
    value.set_sensitive(true);
    request.metadata_mut().insert("x-ramen-admin-key", value);
    request.set_timeout(limit);
    Ok(request)
}

pub(super) fn describe(status: &Status) -> String {
    format!("{}: {}", code_name(status.code()), status.message())
}

pub(super) fn wire(desired: &DesiredState) -> v1::DesiredState {
    let layer = |layer: &LayerRef| v1::Layer {
        key: layer.key.clone(),
        digest: layer.digest.clone(),
        size: layer.size,
    };
    v1::DesiredState {
        revision: desired.revision.clone(),
        code: Some(layer(&desired.code)),
        deps: desired.deps.as_ref().map(layer),
        python: desired.python.clone(),
        exclude: desired.exclude.clone(),
    }
}

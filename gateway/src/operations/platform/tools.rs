//! The tools of a group, asked of its workers, with those of its upstreams.

use std::time::Duration;

use bytes::Bytes;
use ramen_mcp::Era;
use ramen_mcp::version::NEWEST_LEGACY;
use serde_json::{Value, json};

use crate::groups::{GroupName, Groups};
use crate::operations::OpError;
use crate::operations::platform::Platform;
use crate::pool::Carried;

/// How long a worker may take to list its tools.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Pages of a list.
const MAX_PAGES: usize = 100;

/// The workers are asked without saying an era, which is this one.
const ERA: Era = Era::Legacy(NEWEST_LEGACY);

/// The tools of a group, as clients see them.
pub(super) async fn tools(
    platform: &dyn Platform,
    groups: &Groups,
    name: &GroupName,
) -> Result<Vec<Value>, OpError> {
    let Some(group) = groups.get(&name.namespace, &name.name) else {
        // Says so when there is none at all.
        platform.group(name).await?;
        return Err(OpError::Unavailable(
            format!("the group {name} is not served here yet").into(),
        ));
    };
    let keys = group.access().worker.clone();
    let keys = keys.ok_or_else(|| OpError::Internal("no usable key for the workers".into()))?;
    let carried = Carried {
        caller: tonic::metadata::AsciiMetadataValue::from_static("gateway"),
        copies: Vec::new(),
        zone: None,
    };
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..MAX_PAGES {
        let params = cursor
            .take()
            .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params });
        let body = Bytes::from(body.to_string());
        let reply = group.pool.call(&keys, &carried, body.clone(), LIST_LIMIT);
        let reply = reply
            .await
            .map_err(|status| OpError::Unavailable(status.message().to_owned().into()))?;
        let reply = Box::pin(group.upstreams.merge(ERA, &body, reply)).await;
        let mut reply: Value = serde_json::from_slice(&reply).map_err(|error| {
            OpError::Internal(format!("a worker's list is no JSON: {error}").into())
        })?;
        let Value::Array(page) = reply["result"]["tools"].take() else {
            return Err(OpError::Internal("a worker lists no tools".into()));
        };
        tools.extend(page);
        match reply["result"]["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(tools),
        }
    }
    Err(OpError::Internal("a worker's list does not end".into()))
}

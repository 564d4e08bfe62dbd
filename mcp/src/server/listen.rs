//! `subscriptions/listen`: which changes a modern client hears of.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::step::{ListKind, Listen, Step};
use crate::envelope::{Request, members};
use crate::error::McpError;
use crate::id::RequestId;
use crate::names::{meta_key, method};

const FILTER: [&str; 4] = [
    "toolsListChanged",
    "promptsListChanged",
    "resourcesListChanged",
    "resourceSubscriptions",
];

pub(super) fn start(request: &Request<'_>, server_info: Arc<str>) -> Result<Step, McpError> {
    read(request, server_info).map(Step::Listen)
}

fn read(request: &Request<'_>, server_info: Arc<str>) -> Result<Listen, McpError> {
    let filter = request
        .params
        .notifications()
        .filter(|json| json.starts_with('{'))
        .ok_or_else(|| McpError::invalid_params("`notifications` must be an object"))?;
    let filter = members(filter, &FILTER)
        .map_err(|_| McpError::invalid_params("`notifications` is not JSON"))?;
    if let Some(index) = filter.repeated() {
        let message = format!("`notifications` has `{}` twice", FILTER[index]);
        return Err(McpError::invalid_request(message));
    }
    let flag = |index: usize| match filter.get(index) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(McpError::invalid_params(format!(
            "`{}` must be true or false",
            FILTER[index]
        ))),
    };
    // Updates of single resources are not offered, so asking for them is not honoured.
    if filter
        .get(3)
        .is_some_and(|list| serde_json::from_str::<Vec<String>>(list).is_err())
    {
        return Err(McpError::invalid_params(
            "`resourceSubscriptions` must be a list of URIs",
        ));
    }
    Ok(Listen {
        id: request.id.detached(),
        tools: flag(0)?,
        prompts: flag(1)?,
        resources: flag(2)?,
        server_info,
    })
}

impl Listen {
    /// What a `subscriptions/listen` request asks for. `server_info` is the JSON of who ends the stream.
    pub fn read(request: &Request<'_>, server_info: Arc<str>) -> Result<Self, McpError> {
        read(request, server_info)
    }

    /// Whether the client asked for this kind.
    pub fn wants(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources => self.resources,
        }
    }

    /// The first message of the stream: what of the wish is honoured.
    pub fn acknowledged(&self) -> Bytes {
        let asked = [self.tools, self.prompts, self.resources];
        let honoured: Map<String, Value> = FILTER
            .iter()
            .zip(asked)
            .filter(|(_, asked)| *asked)
            .map(|(name, _)| ((*name).to_owned(), Value::Bool(true)))
            .collect();
        let notifications = Value::Object(honoured);
        self.notification(
            method::ACKNOWLEDGED,
            &format!(r#""notifications":{notifications},"#),
        )
    }

    /// Tells of a change; `None` when the client did not ask for this kind.
    pub fn changed(&self, kind: ListKind) -> Option<Bytes> {
        self.wants(kind)
            .then(|| self.notification(kind.method(), ""))
    }

    /// The last message of the stream, when the server ends it.
    pub fn end(&self) -> Bytes {
        let id = self.id.raw();
        let (subscription, info) = (meta_key::SUBSCRIPTION_ID, meta_key::SERVER_INFO);
        let meta = format!(r#"{{"{subscription}":{id},"{info}":{}}}"#, self.server_info);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{meta}}}}}"#
        );
        Bytes::from(body)
    }

    fn notification(&self, name: &str, members: &str) -> Bytes {
        let meta = subscription(&self.id);
        let name = json!(name);
        let body =
            format!(r#"{{"jsonrpc":"2.0","method":{name},"params":{{{members}"_meta":{meta}}}}}"#);
        Bytes::from(body)
    }
}

/// `_meta` of every message on a listen stream: the id keeps its type and its bytes.
fn subscription(id: &RequestId) -> String {
    format!(r#"{{"{}":{}}}"#, meta_key::SUBSCRIPTION_ID, id.raw())
}

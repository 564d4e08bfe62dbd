//! A group's own list with what its upstreams list.

use bytes::Bytes;
use ramen_client::Json;
use ramen_client::hub::{Members, starts_with};
use ramen_mcp::names::method;
use ramen_mcp::{Era, code};
use serde::{Deserialize, Serialize};

use super::Upstreams;

/// A response with a result.
#[derive(Deserialize, Serialize)]
struct Response {
    jsonrpc: Json,
    id: Json,
    result: Members,
}

impl Upstreams {
    /// The same page of a list without what upstreams hide, and with all that they list when it is the last page.
    /// Anything else stays as it is.
    pub(crate) async fn merge(&self, name: &str, era: Era, reply: Bytes) -> Bytes {
        let Some((hub, now)) = self.hub() else {
            return reply;
        };
        let Some((member, theirs)) = hub.entries(name, era).await else {
            return reply;
        };
        let Ok(mut response) = serde_json::from_slice::<Response>(&reply) else {
            return reply;
        };
        let own = response.result.get(member);
        let Some(mut all) = own.and_then(|own| own.to::<Vec<Members>>().ok()) else {
            return reply;
        };
        let (key, hides) = match name {
            method::RESOURCES_LIST => ("uri", false),
            method::TEMPLATES_LIST => ("uriTemplate", false),
            _ => ("name", true),
        };
        let of = |item: &Members| item.get(key).and_then(|name| name.to::<String>().ok());
        all.retain(|item| {
            let Some(own) = of(item).filter(|_| hides) else {
                return true;
            };
            let hidden = now.names.iter().any(|upstream| starts_with(&own, upstream));
            if hidden {
                self.hides(&own);
            }
            !hidden
        });
        if !response.result.contains_key("nextCursor") {
            let known: std::collections::HashSet<_> = all.iter().filter_map(of).collect();
            // The group's own come first, also when somebody asks for one.
            let new = theirs.into_iter();
            all.extend(new.filter(|item| of(item).is_none_or(|name| !known.contains(&name))));
        }
        let Ok(all) = Json::of(&all) else {
            return reply;
        };
        response.result.insert(member.to_owned(), all);
        serde_json::to_vec(&response).map_or(reply, Bytes::from)
    }
}

/// Whether a worker's answer says that it knows no such resource.
pub(crate) fn not_found(reply: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refusal {
        error: Coded,
    }
    #[derive(Deserialize)]
    struct Coded {
        code: i32,
        #[serde(default)]
        data: Option<Located>,
    }
    #[derive(Deserialize)]
    struct Located {
        #[serde(default)]
        uri: Option<Json>,
    }
    // Answers that are none are large, and do not begin so.
    let Ok(Refusal { error }) = serde_json::from_slice(reply) else {
        return false;
    };
    let named = error.data.is_some_and(|data| data.uri.is_some());
    error.code == code::RESOURCE_NOT_FOUND || (error.code == code::INVALID_PARAMS && named)
}

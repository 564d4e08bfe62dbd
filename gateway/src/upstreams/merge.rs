//! A group's own list with what its upstreams list.

use bytes::Bytes;
use ramen_client::Json;
use ramen_client::hub::{self, Members, starts_with};
use ramen_mcp::names::method;
use ramen_mcp::{Connection, Era, Message, Step, code, envelope};
use serde::{Deserialize, Serialize};

use super::{Now, Upstreams, nothing};

/// A response with a result.
#[derive(Deserialize, Serialize)]
struct Response {
    jsonrpc: Json,
    id: Json,
    result: Members,
}

impl Upstreams {
    /// The page of a list that a worker gave, without what upstreams hide, and with all that they list when it is the last
    /// page. Anything else stays as it is. `asked` is the request.
    pub(crate) async fn merge(&self, era: Era, asked: &Bytes, reply: Bytes) -> Bytes {
        let Some((hub, now)) = self.hub() else {
            return reply;
        };
        let Ok(Message::Request(request)) = envelope::parse(asked) else {
            return reply;
        };
        let listed = Box::pin(hub.entries(&request.method, era)).await;
        let Some((member, theirs)) = listed else {
            return reply;
        };
        let Ok(mut response) = serde_json::from_slice::<Response>(&reply) else {
            return reply;
        };
        let cursor = request.params.cursor();
        self.own.keep(member, era, cursor, &response.result);
        let joined = self.join(&now, member, &mut response.result, theirs);
        joined
            .and_then(|()| serde_json::to_vec(&response).ok())
            .map_or(reply, Bytes::from)
    }

    /// What is answered when no worker answers: lists, with the group's own as they were listed last, each entry with a
    /// mark, and what a client asks before it lists. `None` where it takes a worker, or there are no upstreams.
    pub(crate) async fn alone(&self, era: Era, asked: &Bytes, streams: bool) -> Option<Bytes> {
        let (hub, now) = self.hub()?;
        let message = envelope::parse(asked).ok()?;
        let Message::Request(request) = &message else {
            return None;
        };
        let greets = matches!(
            &*request.method,
            method::INITIALIZE | method::DISCOVER | method::PING | method::SET_LEVEL
        );
        let listed = hub.entries(&request.method, era).await;
        if listed.is_none() && !greets {
            return None;
        }
        let mut connection = if streams {
            Connection::session()
        } else {
            Connection::unary()
        };
        let Step::Reply(reply) = nothing::server().step(&message, &mut connection) else {
            return None;
        };
        let Some((member, theirs)) = listed else {
            return Some(reply);
        };
        let Ok(mut response) = serde_json::from_slice::<Response>(&reply) else {
            return Some(reply);
        };
        let mut own = self.own.entries(member, era, request.params.cursor());
        for item in &mut own {
            hub::mark_down(item, &self.group);
        }
        response
            .result
            .insert(member.to_owned(), Json::of(&own).ok()?);
        // Also where nothing is known that could have one.
        hub::mark(&mut response.result, &self.group);
        self.join(&now, member, &mut response.result, theirs)?;
        serde_json::to_vec(&response).ok().map(Bytes::from)
    }

    /// Whether the group's own lists have this resource, or a template that it may come from.
    pub(crate) fn is_own(&self, uri: &str) -> bool {
        self.own.knows(uri)
    }

    /// Puts what upstreams list into a page of the group's own. `None`: it is no list.
    fn join(
        &self,
        now: &Now,
        member: &str,
        result: &mut Members,
        theirs: Vec<Members>,
    ) -> Option<()> {
        let mut all: Vec<Members> = result.get(member)?.to().ok()?;
        let (key, hides) = match member {
            "resources" => ("uri", false),
            "resourceTemplates" => ("uriTemplate", false),
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
        if !result.contains_key("nextCursor") {
            let known: std::collections::HashSet<_> = all.iter().filter_map(of).collect();
            // The group's own come first, also when somebody asks for one.
            let new = theirs.into_iter();
            all.extend(new.filter(|item| of(item).is_none_or(|name| !known.contains(&name))));
        }
        result.insert(member.to_owned(), Json::of(&all).ok()?);
        Some(())
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

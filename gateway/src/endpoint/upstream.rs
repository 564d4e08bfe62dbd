//! Requests that upstreams have a part in.

use bytes::Bytes;
use ramen_mcp::headers::param_headers;
use ramen_mcp::names::method;
use ramen_mcp::{McpError, envelope};
use ramen_proto::code_name;
use tonic::{Code, Status};

use super::source::Source;
use super::{Ask, Call, refuse, reply, stream};
use crate::answer::Answer;
use crate::copies;
use crate::pool;
use crate::upstreams::{Part, merge};

impl Call<'_> {
    pub(super) async fn beside(
        self,
        part: Part,
        request: &envelope::Request<'_>,
        ask: Ask,
        body: Bytes,
        wants_events: bool,
    ) -> Answer {
        let upstreams = &self.group.upstreams;
        match part {
            Part::Theirs => {
                if let Err(error) = self.copies_fit(request, &ask) {
                    return refuse(Some(ask.era), request, &error);
                }
            }
            Part::None | Part::List => return self.unary(ask, request, body).await,
            Part::Read => match self.worker(&ask, body.clone()).await {
                Ok(reply) if merge::not_found(&reply) => {}
                Ok(reply) => return self.respond(&ask, reply),
                // Whoever is down costs what is its own.
                Err(status) if costs_only_its_own(&status) && !self.asks_own(request) => {}
                Err(status) => return reply::failed(&ask, &status),
            },
        }
        let limit = self.gateway.call_timeout;
        // Taken away in this moment: then the worker says that it knows no such thing.
        let Some(running) = upstreams.ask(request, ask.era, limit) else {
            return self.unary(ask, request, body).await;
        };
        let mut source = Source::upstream(running, pool::until(limit));
        if self.accepts.events && wants_events {
            let first = stream::first(&mut source).await;
            self.pass_on(ask, source, first)
        } else {
            self.only_answer(ask, source).await
        }
    }

    /// Holds the header copies of arguments against those of a call, as a worker does for its own tools.
    fn copies_fit(&self, request: &envelope::Request<'_>, ask: &Ask) -> Result<(), McpError> {
        if !ask.era.is_modern() || request.method != method::TOOLS_CALL {
            return Ok(());
        }
        let name = request.params.name().and_then(envelope::text);
        let schema = name.and_then(|name| self.group.upstreams.input_schema(&name));
        let Some(schema) = schema else { return Ok(()) };
        let arguments = request.params.arguments().unwrap_or("{}");
        copies::params(&self.parts.headers).check(&param_headers(schema.get()), arguments)
    }

    /// What is answered in the place of the workers, when they do not and it takes none of them.
    pub(super) async fn instead(
        &self,
        ask: &Ask,
        body: &Bytes,
        streams: bool,
        status: Status,
    ) -> Result<Bytes, Status> {
        if !costs_only_its_own(&status) {
            return Err(status);
        }
        let upstreams = &self.group.upstreams;
        let Some(reply) = upstreams.alone(ask.era, body, streams).await else {
            return Err(status);
        };
        tracing::warn!(
            group = %self.group.name,
            code = code_name(status.code()),
            error = status.message(),
            "no worker answers; the upstreams are listed all the same"
        );
        Ok(reply)
    }

    /// Whether it is for a resource of the group's own, as far as its workers told.
    fn asks_own(&self, request: &envelope::Request<'_>) -> bool {
        let uri = request.params.uri().and_then(envelope::text);
        uri.is_some_and(|uri| self.group.upstreams.is_own(&uri))
    }
}

/// Whether it says that the workers are down; one that has too much to do just now is not.
fn costs_only_its_own(status: &Status) -> bool {
    status.code() != Code::ResourceExhausted
}

//! Requests that upstreams have a part in.

use bytes::Bytes;
use ramen_mcp::envelope;

use super::source::Source;
use super::{Ask, Call, reply};
use crate::answer::Answer;
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
            Part::Theirs => {}
            Part::None | Part::List => return self.unary(ask, request, body).await,
            Part::Read => match self.worker(&ask, body.clone()).await {
                Ok(reply) if merge::not_found(&reply) => {}
                Ok(reply) => return self.respond(&ask, reply),
                Err(status) => return reply::failed(&ask, &status),
            },
        }
        let limit = self.gateway.call_timeout;
        // Taken away in this moment: then the worker says that it knows no such thing.
        let Some(running) = upstreams.ask(request, ask.era, limit) else {
            return self.unary(ask, request, body).await;
        };
        let source = Source::Upstream(running);
        if self.accepts.events && wants_events {
            self.pass_on(ask, source).await
        } else {
            self.only_answer(ask, source).await
        }
    }
}

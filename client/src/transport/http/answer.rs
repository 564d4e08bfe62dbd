//! Answers as they come in: JSON, a stream of events, or a status that says no.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use ramen_mcp::RequestId;
use ramen_mcp::envelope::{self, Message};

use super::dial::innermost;
use super::sse::{Event, Parser};
use super::{Outgoing, Shared};
use crate::error::ClientError;
use crate::refusal::refusal;
use crate::transport::Inbound;

/// The wait before a stream is resumed, when the server does not say.
const RETRY: Duration = Duration::from_secs(1);
/// Times that a stream is resumed without any event in between.
const MAX_EMPTY: u32 = 5;
/// Bytes of a refusal that are read.
const MAX_REFUSAL: usize = 64 * 1024;
/// How long a refusal may take to be read.
const REFUSAL_TIME: Duration = Duration::from_secs(5);

/// How a stream ended.
enum Ended {
    /// With our answer.
    Answered,
    /// Without it. Whether anything came.
    Early { events: bool },
}

impl Shared {
    /// One request: everything that belongs to it goes to the reader, its answer last.
    pub(super) async fn exchange(
        &self,
        id: &RequestId,
        message: &Outgoing,
    ) -> Result<(), ClientError> {
        let (response, named) = self.post(message).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(response, named).await);
        }
        match kind(&response) {
            Kind::Json => {
                let body = self
                    .whole(response.into_body(), self.limits.message)
                    .await?;
                // Without an answer in it nobody would be told.
                if !answers(&body, id) {
                    return Err(self.no_answer());
                }
                self.pass(body).await;
                Ok(())
            }
            Kind::Events => self.stream(id, message, response).await,
            Kind::Coded => Err(ClientError::answer(
                &message.method,
                "it is compressed, which nobody asked for",
            )),
            Kind::Other => Err(ClientError::answer(
                &message.method,
                format!("HTTP {} with neither JSON nor events", status.as_u16()),
            )),
        }
    }

    /// A message that has no answer. What the server says to it beyond its status does not matter. Nobody else bounds how long
    /// that may take.
    pub(super) async fn notify(&self, message: &Outgoing) -> Result<(), ClientError> {
        let patience = self.limits.request.max(self.limits.connect);
        let notifying = async {
            let (response, named) = self.post(message).await?;
            if response.status().is_success() {
                return Ok(());
            }
            Err(self.refused(response, named).await)
        };
        let in_time = tokio::time::timeout(patience, notifying).await;
        in_time.unwrap_or_else(|_| {
            Err(ClientError::Timeout {
                method: message.method.clone(),
                after: patience,
            })
        })
    }

    /// Reads events up to the answer. A legacy stream that breaks before it is resumed where the server numbers events.
    async fn stream(
        &self,
        id: &RequestId,
        message: &Outgoing,
        response: Response<Incoming>,
    ) -> Result<(), ClientError> {
        let legacy = message.version.is_none_or(|version| !version.is_modern());
        let mut parser = Parser::new(self.limits.message);
        let mut body = response.into_body();
        let mut empty = 0;
        loop {
            match self.read_events(&mut parser, &mut body, Some(id)).await? {
                Ended::Answered => return Ok(()),
                Ended::Early { events: true } => empty = 0,
                Ended::Early { events: false } => empty += 1,
            }
            let Some(last) = parser
                .last_id
                .clone()
                .filter(|_| legacy && empty < MAX_EMPTY)
            else {
                return Err(self.no_answer());
            };
            tokio::time::sleep(parser.retry.unwrap_or(RETRY)).await;
            let version = message.version.unwrap_or(ramen_mcp::version::NEWEST_LEGACY);
            // The request arrived: a refusal of the rest says nothing of it, least of all that it may be sent again.
            let resumed = match self.events(version, Some(&last)).await {
                Ok(resumed) if resumed.status().is_success() => resumed,
                Ok(refused) => {
                    let status = refused.status().as_u16();
                    return Err(self.no_rest(&format!("HTTP {status}")));
                }
                Err(error) => return Err(self.no_rest(&error.to_string())),
            };
            parser.reopened();
            body = resumed.into_body();
        }
    }

    /// The events that a legacy server sends by itself, until the stream ends. Whether anything came.
    pub(super) async fn unasked(
        &self,
        parser: &mut Parser,
        response: Response<Incoming>,
    ) -> Result<bool, ClientError> {
        let mut body = response.into_body();
        match self.read_events(parser, &mut body, None).await? {
            Ended::Early { events } => Ok(events),
            Ended::Answered => Ok(true),
        }
    }

    async fn read_events(
        &self,
        parser: &mut Parser,
        body: &mut Incoming,
        id: Option<&RequestId>,
    ) -> Result<Ended, ClientError> {
        let mut any = false;
        while let Some(frame) = body.frame().await {
            // A broken stream is one that ended early: it may be resumed.
            let Ok(frame) = frame else { break };
            let Some(piece) = frame.data_ref() else {
                continue;
            };
            let events = parser.feed(piece).map_err(|_| ClientError::TooLarge {
                what: "an event",
                limit: self.limits.message,
            })?;
            for Event { kind, data } in events {
                any = true;
                if data.is_empty() || kind.is_some_and(|kind| kind != "message") {
                    continue;
                }
                let answered = id.is_some_and(|id| answers(&data, id));
                self.pass(data).await;
                if answered {
                    return Ok(Ended::Answered);
                }
            }
        }
        Ok(Ended::Early { events: any })
    }

    async fn pass(&self, message: Bytes) {
        let _ = self.inbound.send(Inbound::Message(message)).await;
    }

    fn no_answer(&self) -> ClientError {
        ClientError::answer("a request", format!("{} sent no answer to it", self.url))
    }

    fn no_rest(&self, why: &str) -> ClientError {
        let url = &self.url;
        ClientError::answer(
            "a request",
            format!("{url} broke off its answer, and the rest cannot be had: {why}"),
        )
    }

    /// Why a status says no. `session`: the request named one.
    pub(super) async fn refused(&self, response: Response<Incoming>, session: bool) -> ClientError {
        let status = response.status();
        let url = self.url.to_string();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let challenge = response.headers().get(header::WWW_AUTHENTICATE);
                let challenge = challenge.and_then(|value| value.to_str().ok());
                return ClientError::SignIn {
                    url,
                    status: status.as_u16(),
                    challenge: challenge.map(|text| text.chars().take(2000).collect()),
                };
            }
            StatusCode::NOT_FOUND if session => return ClientError::SessionLost,
            _ => {}
        }
        let kind = kind(&response);
        if matches!(kind, Kind::Coded) {
            return ClientError::Http {
                url,
                status: status.as_u16(),
                text: "what it says is compressed, which nobody asked for".to_owned(),
            };
        }
        let body = self.whole(response.into_body(), MAX_REFUSAL);
        let body = tokio::time::timeout(REFUSAL_TIME, body).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        if matches!(kind, Kind::Json)
            && let Ok(Message::Response(answer)) = envelope::parse(&body)
            && let Err(error) = answer.outcome
        {
            return refusal(|text| self.masked(text), error);
        }
        // Masked before it is cut: half a secret is not found any more.
        let text = self.masked(&String::from_utf8_lossy(&body));
        ClientError::Http {
            url,
            status: status.as_u16(),
            text: text.chars().filter(|c| !c.is_control()).take(300).collect(),
        }
    }

    async fn whole(&self, mut body: Incoming, limit: usize) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let why = innermost(&error);
                ClientError::answer("a request", format!("{} broke off: {why}", self.url))
            })?;
            if let Some(piece) = frame.data_ref() {
                if all.len() + piece.len() > limit {
                    return Err(ClientError::TooLarge {
                        what: "the answer",
                        limit,
                    });
                }
                all.extend_from_slice(piece);
            }
        }
        Ok(all.freeze())
    }
}

/// Whether a message answers the request, or is broken in a way that names it.
fn answers(body: &Bytes, id: &RequestId) -> bool {
    let named = match envelope::parse(body) {
        Ok(Message::Response(response)) => response.id,
        Err(reject) => reject.id,
        Ok(_) => None,
    };
    named.is_some_and(|named| named.key() == id.key())
}

pub(super) enum Kind {
    Json,
    Events,
    /// Compressed. Nothing is unpacked: what is small on the way may be anything then.
    Coded,
    Other,
}

pub(super) fn kind(response: &Response<Incoming>) -> Kind {
    let coding = response.headers().get(header::CONTENT_ENCODING);
    if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Kind::Coded;
    }
    let value = response.headers().get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Kind::Json
    } else if essence.eq_ignore_ascii_case("text/event-stream") {
        Kind::Events
    } else {
        Kind::Other
    }
}

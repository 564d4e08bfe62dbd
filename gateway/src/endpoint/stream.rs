//! A request that may be answered by several messages: over a `Session` of its own, or from an upstream.

use std::sync::Arc;

use bytes::Bytes;
use ramen_mcp::{McpError, Message, envelope};
use ramen_proto::is_not_begun;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;

use super::source::Source;
use super::{Ask, Call, reply};
use crate::access::Welcome;
use crate::answer::{self, Answer, Refusal};
use crate::listen::{KEEP_ALIVE_EVERY, send};
use crate::media;
use crate::metrics::Outcome;
use crate::pool;

/// Events that wait for the client to read; what sends more waits.
const QUEUE: usize = 16;

pub(super) fn channel() -> (mpsc::Sender<Bytes>, mpsc::Receiver<Bytes>) {
    mpsc::channel(QUEUE)
}

/// One message as a whole stream, for a client that reads nothing else.
pub(super) fn single(message: &[u8]) -> Answer {
    let (out, pieces) = channel();
    // The channel is empty and has room for it.
    let _ = out.try_send(media::event(message));
    answer::events(pieces)
}

/// What comes of a request.
pub(super) enum Heard {
    /// Something on the way.
    Event(Bytes),
    /// The answer.
    Answer(Bytes),
    /// There will be none.
    Failed(Status),
}

async fn hear(source: &mut Source) -> Heard {
    loop {
        match source.next().await {
            Ok(Some(message)) => match envelope::parse(&message) {
                Ok(Message::Response(response)) => {
                    return match source.answered(response.outcome) {
                        Some(status) => Heard::Failed(status),
                        None => Heard::Answer(message),
                    };
                }
                Ok(Message::Notification(_)) => return Heard::Event(message),
                // Neither asks anything.
                Ok(Message::Request(_)) | Err(_) => {}
            },
            Ok(None) => {
                return Heard::Failed(Status::internal("the worker ended before it answered"));
            }
            Err(status) => return Heard::Failed(status),
        }
    }
}

/// What comes first; `None` when nothing has come for so long that something is to be sent.
pub(super) async fn first(source: &mut Source) -> Option<Heard> {
    let heard = tokio::time::timeout(KEEP_ALIVE_EVERY, hear(source)).await;
    heard.ok()
}

impl Call<'_> {
    /// Answers as JSON when the answer comes first; else commits to events.
    pub(super) async fn stream(self, ask: Ask, body: Bytes) -> Answer {
        let limit = self.gateway.call_timeout;
        let until = pool::until(limit);
        let (mut asked, mut refused) = (Vec::new(), None);
        let status = loop {
            let (keys, carried, body) = (&ask.keys, &ask.carried, body.clone());
            let pool = &self.group.pool;
            let session = match pool
                .session(keys, carried, body, (limit, until), &asked)
                .await
            {
                Ok(session) => session,
                Err(status) if is_not_begun(&status) => break refused.unwrap_or(status),
                Err(status) => break status,
            };
            let worker = Arc::clone(session.worker());
            let mut source = Source::worker(session, until);
            match first(&mut source).await {
                // As with any other call: the next worker is asked.
                Some(Heard::Failed(status)) if is_not_begun(&status) => {
                    asked.push(worker);
                    refused = Some(status);
                }
                first => return self.pass_on(ask, source, first),
            }
        };
        match Box::pin(self.instead(&ask, &body, true, status)).await {
            Ok(reply) => self.respond(&ask, reply),
            Err(status) => reply::failed(&ask, &status),
        }
    }

    /// The one answer, whatever else comes before it.
    pub(super) async fn only_answer(self, ask: Ask, mut source: Source) -> Answer {
        loop {
            match hear(&mut source).await {
                Heard::Answer(reply) => return self.respond(&ask, reply),
                Heard::Failed(status) => return reply::failed(&ask, &status),
                Heard::Event(_) => {}
            }
        }
    }

    /// Everything that comes, after what came first.
    pub(super) fn pass_on(self, ask: Ask, source: Source, first: Option<Heard>) -> Answer {
        let piece = match first {
            Some(Heard::Answer(reply)) => return self.respond(&ask, reply),
            Some(Heard::Failed(status)) => return reply::failed(&ask, &status),
            Some(Heard::Event(message)) => media::event(&message),
            None => media::KEEP_ALIVE,
        };
        if let Err(refusal) = self.recheck(&ask) {
            return self.refuse(refusal);
        }
        let (out, pieces) = channel();
        let _ = out.try_send(piece);
        let target = ask.shown().cloned();
        let welcome = Welcome::new(&self.group, &self.caller, self.address, target);
        let (place, noted) = (self.place, self.noted);
        tokio::spawn(async move {
            let outcome = pump(source, &ask, &out, welcome).await;
            if let Some(noted) = noted {
                noted.ended(outcome);
            }
            drop(place);
        });
        answer::events(pieces)
    }
}

/// What whoever is shut out in mid-stream is told.
fn shut_out(refusal: Refusal) -> McpError {
    McpError::internal(match refusal {
        Refusal::Address => "this address may not call any more",
        _ => "the credential is not valid any more",
    })
}

/// Passes messages on until the answer; gives how it ended. Dropping the source cancels the call.
async fn pump(
    mut source: Source,
    ask: &Ask,
    out: &mpsc::Sender<Bytes>,
    mut welcome: Welcome,
) -> Outcome {
    let mut tick = tokio::time::interval_at(Instant::now() + KEEP_ALIVE_EVERY, KEEP_ALIVE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let heard = tokio::select! {
            heard = hear(&mut source) => heard,
            _ = tick.tick() => {
                if !send(out, media::KEEP_ALIVE).await {
                    return Outcome::Cancelled;
                }
                continue;
            }
            () = out.closed() => return Outcome::Cancelled,
            refusal = welcome.over() => {
                let error = shut_out(refusal);
                send(out, media::event(&error.body(&ask.id))).await;
                return Outcome::Refused;
            }
        };
        let (outcome, last) = match (welcome.judge(), heard) {
            (Err(refusal), _) => (Outcome::Refused, shut_out(refusal).body(&ask.id)),
            (Ok(_), Heard::Event(message)) => {
                if !send(out, media::event(&message)).await {
                    return Outcome::Cancelled;
                }
                continue;
            }
            (Ok(_), Heard::Answer(reply)) => match reply::code_of(&reply, &ask.id) {
                Ok(None) => (ask.outcome_of(&reply), reply),
                Ok(Some(_)) => (Outcome::Error, ask.put_back(reply)),
                Err(why) => {
                    let error = reply::unusable_error(why);
                    (Outcome::BadWorker, error.body(&ask.id))
                }
            },
            (Ok(_), Heard::Failed(status)) => {
                let error = reply::error_of(&status);
                (reply::outcome_of(&status), error.body(&ask.id))
            }
        };
        if !send(out, media::event(&last)).await {
            return Outcome::Cancelled;
        }
        return outcome;
    }
}

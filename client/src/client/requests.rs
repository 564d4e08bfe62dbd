//! Requests of one connection: in rounds, in pages, and again when the server has forgotten the session.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{CallOptions, Inner, rounds};
use crate::error::ClientError;
use crate::handshake;
use crate::list::Pages;
use crate::peer::Ask;
use crate::transport::http::mirror;

/// Times that a modern server may ask to be asked again with its state.
const MAX_ROUNDS: usize = 8;

/// The handshakes of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// How often it was made again.
    made: u64,
    /// It was begun again and not brought to its end: nothing can be asked before it is.
    lost: bool,
}

impl Inner {
    pub(super) async fn request(
        self: &Arc<Self>,
        name: &str,
        params: &str,
        options: CallOptions,
    ) -> Result<Json, ClientError> {
        let patience = options.timeout.unwrap_or(self.timeout);
        let (mirrored, headers) = self.mirrored(name, params);
        let mut params = params.to_owned();
        for _ in 0..MAX_ROUNDS {
            let ask = || {
                Ask::new(name)
                    .params(params.as_str())
                    .mirrored(mirrored.clone(), headers.clone())
                    .progress(options.progress.clone())
            };
            let result = self.ask(name, ask, patience).await?;
            match rounds::next(name, &params, &result, self.person.as_ref()).await? {
                None => return Ok(result),
                Some(next) => params = next,
            }
        }
        Err(ClientError::answer(
            name,
            "it asks to be asked again and again",
        ))
    }

    /// Asks; when the server has forgotten the session, makes a new one and asks once more. Such a refusal comes before
    /// anything is done, so even a call may be repeated. All of it has to be done in time, not only each part.
    async fn ask(
        self: &Arc<Self>,
        name: &str,
        ask: impl Fn() -> Ask,
        patience: Duration,
    ) -> Result<Json, ClientError> {
        let asked = async {
            let (mut made, lost) = {
                let session = self.session.lock().await;
                (session.made, session.lost)
            };
            if lost {
                made = self.renew(made).await?;
            }
            match self.peer.ask(ask(), patience).await {
                Err(ClientError::SessionLost) => {
                    self.renew(made).await?;
                    self.peer.ask(ask(), patience).await
                }
                outcome => outcome,
            }
        };
        let in_time = tokio::time::timeout(patience, asked).await;
        in_time.unwrap_or_else(|_| {
            Err(ClientError::Timeout {
                method: name.to_owned(),
                after: patience,
            })
        })
    }

    /// Makes a new session, unless somebody else did since `made` were made; gives how many were made by now. In a task of
    /// its own: who waits for it may give up at any moment, and a session is of no use with half a handshake.
    async fn renew(self: &Arc<Self>, made: u64) -> Result<u64, ClientError> {
        let (told, outcome) = oneshot::channel();
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let mut session = inner.session.lock().await;
            // Who asked for it may have given up while another attempt was under way.
            if !told.is_closed() {
                let outcome = inner.shake_hands(&mut session, made).await;
                let _ = told.send(outcome);
            }
        });
        outcome
            .await
            .unwrap_or_else(|_| Err(ClientError::gone("the session cannot be made anew")))
    }

    async fn shake_hands(&self, session: &mut Session, made: u64) -> Result<u64, ClientError> {
        if session.made != made && !session.lost {
            return Ok(session.made);
        }
        tracing::info!(
            server = self.name,
            "the server lost the session; making a new one"
        );
        session.lost = true;
        let agreement = handshake::initialize(&self.peer, self.limits.connect).await?;
        let version = agreement.version;
        *self
            .agreement
            .write()
            .unwrap_or_else(PoisonError::into_inner) = agreement;
        session.made += 1;
        session.lost = false;
        self.peer.listen(version);
        Ok(session.made)
    }

    /// What modern HTTP repeats of a request in headers.
    fn mirrored(&self, name: &str, params: &str) -> (Option<String>, Vec<(String, String)>) {
        #[derive(Deserialize)]
        struct Mirrored {
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            uri: Option<String>,
            #[serde(default)]
            arguments: Option<Json>,
        }
        if !self.over_http || !self.agreement().version.is_modern() {
            return (None, Vec::new());
        }
        let Ok(found) = serde_json::from_str::<Mirrored>(params) else {
            return (None, Vec::new());
        };
        match name {
            method::TOOLS_CALL => {
                let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
                let tool = tools
                    .iter()
                    .find(|tool| Some(&tool.name) == found.name.as_ref());
                let headers = match (tool, &found.arguments) {
                    (Some(tool), Some(arguments)) => mirror::headers(&tool.input_schema, arguments),
                    _ => Vec::new(),
                };
                (found.name, headers)
            }
            method::PROMPTS_GET => (found.name, Vec::new()),
            method::RESOURCES_READ => (found.uri, Vec::new()),
            _ => (None, Vec::new()),
        }
    }

    pub(super) async fn pages<'i>(
        self: &'i Arc<Self>,
        name: &'static str,
        key: &'static str,
    ) -> Result<Pages<'i>, ClientError> {
        let mut pages = Pages::new(name, key, &self.limits);
        let mut params = "{}".to_owned();
        loop {
            let page = self.request(name, &params, CallOptions::default()).await?;
            match pages.take(&page)? {
                None => return Ok(pages),
                Some(next) => params = next,
            }
        }
    }
}

//! Requests of one connection: in rounds, in pages, and again when the server has forgotten the session.

use std::sync::PoisonError;
use std::time::Duration;

use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use serde::Deserialize;

use super::{CallOptions, Inner, rounds};
use crate::error::ClientError;
use crate::handshake;
use crate::list::Pages;
use crate::peer::Ask;
use crate::transport::http::mirror;

/// Times that a modern server may ask to be asked again with its state.
const MAX_ROUNDS: usize = 8;

impl Inner {
    pub(super) async fn request(
        &self,
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
            let result = self.ask(ask, patience).await?;
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
    /// anything is done, so even a call may be repeated.
    async fn ask(&self, ask: impl Fn() -> Ask, patience: Duration) -> Result<Json, ClientError> {
        let seen = *self.session.lock().await;
        match self.peer.ask(ask(), patience).await {
            Err(ClientError::SessionLost) => {
                self.renew(seen).await?;
                self.peer.ask(ask(), patience).await
            }
            outcome => outcome,
        }
    }

    async fn renew(&self, seen: u64) -> Result<(), ClientError> {
        let mut session = self.session.lock().await;
        if *session != seen {
            return Ok(());
        }
        tracing::info!(
            server = self.name,
            "the server lost the session; making a new one"
        );
        let agreement = handshake::initialize(&self.peer, self.limits.connect).await?;
        let version = agreement.version;
        *self
            .agreement
            .write()
            .unwrap_or_else(PoisonError::into_inner) = agreement;
        *session += 1;
        self.peer.listen(version);
        Ok(())
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

    pub(super) async fn pages(
        &self,
        name: &'static str,
        key: &'static str,
    ) -> Result<Pages<'_>, ClientError> {
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

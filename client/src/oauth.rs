//! Sign-in of servers that want one: OAuth 2.1 with PKCE, as the protocol's authorization chapter has it.
//!
//! The server's challenge leads to its metadata (RFC 9728), that to its authorization server (RFC 8414, `OpenID` Connect
//! discovery). A person agrees in a browser, the answer comes back to a port of this machine, and the token is kept in a
//! file of mode 0600. A token is for one server (RFC 8707) and goes nowhere else.

mod challenge;
mod flow;
mod metadata;
mod register;
mod store;
pub mod web;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ramen_redact::Secret;
use url::Url;

use crate::error::ClientError;
use challenge::Challenge;
use store::{Store, Tokens};

/// Shows an address to a person, who agrees there. `Err` says why that cannot be done.
type Open = dyn Fn(&Url) -> Result<(), String> + Send + Sync;

/// How to sign in.
#[derive(Clone)]
pub struct SignIn {
    store: Arc<Store>,
    open: Arc<Open>,
    client: Registered,
    /// One sign-in at a server at a time: the second finds the token of the first. Those at other servers go on, since a
    /// person may take minutes.
    alone: Arc<Mutex<HashMap<String, Alone>>>,
}

/// Held while somebody signs in at a server.
type Alone = Arc<tokio::sync::Mutex<()>>;

/// A client that is known to the authorization server before.
#[derive(Clone, Debug, Default)]
pub struct Registered {
    /// Its id. Without one the client registers itself where the server allows it.
    pub id: Option<String>,
    /// Its secret, for servers that gave one out.
    pub secret: Option<Secret>,
    /// Address of a document that describes it, for servers that read such documents instead of registering clients.
    pub document: Option<Url>,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl SignIn {
    /// Keeps tokens in `file` and shows addresses with `open`.
    pub fn new(
        file: impl Into<PathBuf>,
        open: impl Fn(&Url) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            store: Arc::new(Store::new(file.into())),
            open: Arc::new(open),
            client: Registered::default(),
            alone: Arc::default(),
        }
    }

    /// Shows addresses in another way.
    #[must_use]
    pub fn shown_by(
        mut self,
        open: impl Fn(&Url) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.open = Arc::new(open);
        self
    }

    /// As this client.
    #[must_use]
    pub fn with_client(mut self, client: Registered) -> Self {
        self.client = client;
        self
    }

    /// The token that is kept for this server, when there is one.
    pub(crate) fn kept(&self, server: &Url) -> Option<Secret> {
        let tokens = self.store.get(server)?;
        (!tokens.expired()).then_some(tokens.access)
    }

    /// A token for a server that answered with this challenge to a request with `used`. Tried in turn: one that another
    /// request got meanwhile, the refresh token, and a person.
    pub(crate) async fn token(
        &self,
        server: &Url,
        status: u16,
        challenge: Option<&str>,
        used: Option<&Secret>,
    ) -> Result<Secret, ClientError> {
        let alone = self.alone(server);
        let _alone = alone.lock().await;
        let challenge = Challenge::read(challenge.unwrap_or_default());
        let mut kept = self.store.get(server);
        if let Some(newer) = newer(kept.as_ref(), used) {
            return Ok(newer);
        }
        // More rights need a person; everything else may be a token that ran out.
        if status == 401 && kept.as_ref().is_some_and(|kept| kept.refresh.is_some()) {
            let _turn = self.store.turn().await;
            // Another program may have had its turn meanwhile.
            let before = kept.map(|kept| kept.access);
            kept = self.store.get(server);
            if let Some(newer) = newer(kept.as_ref(), before.as_ref()) {
                return Ok(newer);
            }
            if let Some(kept) = kept.as_ref().filter(|kept| kept.refresh.is_some()) {
                match flow::refresh(kept).await {
                    Ok(tokens) => return Ok(self.keep(server, &tokens)),
                    Err(why) => {
                        tracing::info!(why, "the sign-in cannot be renewed; a person is asked");
                    }
                }
            }
        }
        let wanted = flow::Wanted {
            server,
            challenge: &challenge,
            before: kept.as_ref(),
            client: &self.client,
            open: &*self.open,
        };
        let tokens = flow::sign_in(&wanted).await.map_err(|why| {
            let url = ramen_redact::SafeUrl::from(server.clone()).to_string();
            ClientError::SignInFailed { url, why }
        })?;
        Ok(self.keep(server, &tokens))
    }

    fn alone(&self, server: &Url) -> Alone {
        let mut all = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(store::key(server)).or_default())
    }

    fn keep(&self, server: &Url, tokens: &Tokens) -> Secret {
        let access = tokens.access.clone();
        if let Err(error) = self.store.put(server, tokens) {
            tracing::warn!(%error, "the sign-in is not kept; the next start asks again");
        }
        access
    }
}

/// The token that is kept, when it is another one than that of before, and good.
fn newer(kept: Option<&Tokens>, before: Option<&Secret>) -> Option<Secret> {
    let kept = kept.filter(|kept| !kept.expired())?;
    before
        .is_some_and(|before| *before != kept.access)
        .then(|| kept.access.clone())
}

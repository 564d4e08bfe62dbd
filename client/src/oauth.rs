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
                    Ok(tokens) => return Ok(self.keep(server, tokens).await),
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
        Ok(self.keep(server, tokens).await)
    }

    fn alone(&self, server: &Url) -> Alone {
        let mut all = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(store::key(server)).or_default())
    }

    /// Keeps them in the file, which other programs may be changing: that is waited for on a thread of its own.
    async fn keep(&self, server: &Url, tokens: Tokens) -> Secret {
        let access = tokens.access.clone();
        let (store, server) = (Arc::clone(&self.store), server.clone());
        let put = tokio::task::spawn_blocking(move || store.put(&server, &tokens)).await;
        if let Err(error) = put.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;

    use super::register::{Identity, Proof};
    use super::*;
    use crate::replace::Change;

    #[tokio::test]
    async fn another_program_that_changes_the_file_holds_up_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sign-ins.json");
        let sign_in = SignIn::new(&file, |_| Ok(()));
        let server = Url::parse("https://mcp.example.com/mcp").unwrap();
        let tokens = Tokens {
            access: "an-access-token".into(),
            refresh: None,
            expires: None,
            scope: None,
            issuer: "https://as.example.com".to_owned(),
            token_endpoint: Url::parse("https://as.example.com/token").unwrap(),
            resource: server.to_string(),
            identity: Identity {
                id: "a-client".to_owned(),
                secret: None,
                proof: Proof::None,
            },
        };
        let others = Change::begin(&file).unwrap();
        let mut kept = pin!(sign_in.keep(&server, tokens));
        assert!(kept.as_mut().now_or_never().is_none(), "it waits elsewhere");
        drop(others);
        let access = kept.await;
        assert_eq!(sign_in.kept(&server), Some(access));
    }
}

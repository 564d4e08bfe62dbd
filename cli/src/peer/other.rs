//! Any MCP server of the configuration, over stdio or Streamable HTTP.

use ramen_client::{CallOptions, Client, ClientError, Options, ServerConfig};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use super::refusal;
use crate::connect::KeySource;
use crate::exit::Failure;

/// One server, connected on first use.
#[derive(Debug)]
pub(super) struct Other {
    name: String,
    config: ServerConfig,
    options: Options,
    /// Where the key comes from that goes with each request, of a gateway of ours.
    key: Option<KeySource>,
    client: OnceCell<Client>,
}

impl Other {
    pub(super) fn new(name: String, config: ServerConfig, options: Options) -> Self {
        Self {
            name,
            config,
            options,
            key: None,
            client: OnceCell::new(),
        }
    }

    /// The same, called with a key from there.
    pub(super) fn with_key_of(self, source: KeySource) -> Self {
        Self {
            key: Some(source),
            ..self
        }
    }

    pub(super) async fn request(
        &self,
        method: &str,
        params: &str,
    ) -> Result<Box<RawValue>, Failure> {
        let connecting = || Client::connect(&self.name, &self.config, &self.options);
        let client = self.client.get_or_try_init(connecting);
        let client = client.await.map_err(|error| self.failure(method, &error))?;
        let result = client.request(method, params, CallOptions::default()).await;
        let result = result.map_err(|error| self.failure(method, &error))?;
        RawValue::from_string(result.get().to_owned())
            .map_err(|error| Failure::error(error.to_string()))
    }

    /// Whether the server has such a list at all: `prompts`, `resources`.
    pub(super) fn offers(&self, kind: &str) -> bool {
        let offers = self.client.get().map(Client::offers);
        offers.is_none_or(|offers| kind == "tools" || offers.iter().any(|offer| offer == kind))
    }

    /// Ends the program behind it, with what that started.
    pub(super) async fn close(&self) {
        if let Some(client) = self.client.get() {
            client.close().await;
        }
    }

    fn failure(&self, method: &str, error: &ClientError) -> Failure {
        let name = &self.name;
        if let (ClientError::SignIn { status, .. }, Some(key)) = (error, &self.key) {
            let why = if *status == 403 {
                "no access rule of the group is about the key"
            } else {
                "the key is not valid"
            };
            return Failure::transport(format!("{name}: {why}; {}", key.hint()));
        }
        match error {
            ClientError::Rpc(error) => refusal(method, i64::from(error.code), &error.message),
            ClientError::Answer { .. } | ClientError::TooLarge { .. } => {
                Failure::error(format!("{name}: {}", error.chain()))
            }
            ClientError::Config { .. } => Failure::usage(error.chain()),
            // Many servers know keys alone.
            ClientError::SignInFailed { .. } => Failure::transport(format!(
                "{}; a key is given with --header 'Authorization: Bearer …' or by an entry of the `mcpServers` files",
                error.chain()
            )),
            _ => Failure::transport(format!("{name}: {}", error.chain())),
        }
    }
}

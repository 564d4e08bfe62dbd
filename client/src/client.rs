//! One connected server.

mod background;
mod connect;
mod options;
mod requests;
mod rounds;
mod tools;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ramen_mcp::Version;
use ramen_mcp::model::{Implementation, Json};
use ramen_mcp::names::method;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cache::Cache;
use crate::config::{Fingerprint, ServerConfig};
use crate::error::ClientError;
use crate::flatten;
use crate::handshake::{Agreement, read};
use crate::limits::Limits;
use crate::list::{Prompt, Resource, Tool};
use crate::peer::Peer;

use requests::Session;

pub use options::{Addresses, CallOptions, Elicit, Options, Progress, Updates};

/// A connected MCP server: one transport, one table of requests that wait for answers, and the tools it advertises.
///
/// Dropping it ends the connection and the process; [`Client::close`] also waits for that.
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    peer: Peer,
    fingerprint: Fingerprint,
    agreement: RwLock<Agreement>,
    /// Held while the handshake is made again.
    session: tokio::sync::Mutex<Session>,
    tools: RwLock<Arc<[Tool]>>,
    updates: watch::Sender<Updates>,
    limits: Limits,
    timeout: Duration,
    over_http: bool,
    cache: Option<Cache>,
    person: Option<Elicit>,
    config: ServerConfig,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.inner.name).finish()
    }
}

impl Client {
    /// The name it is configured under.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The server's own name and version, for logs. Empty when it does not say.
    pub fn server_info(&self) -> String {
        match &self.inner.agreement().server {
            Some(server) => format!("{} {}", server.name, server.version)
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect(),
            None => String::new(),
        }
    }

    /// Who the server says it is, with all it says.
    pub fn implementation(&self) -> Option<Implementation> {
        self.inner.agreement().server.clone()
    }

    /// What the server wants a model to know of it.
    pub fn instructions(&self) -> Option<String> {
        self.inner.agreement().instructions.clone()
    }

    /// The revision of the protocol that is spoken.
    pub fn version(&self) -> Version {
        self.inner.agreement().version
    }

    /// The server's most recently known tools: what it advertised when it was connected, or what a later
    /// `tools/list_changed` refreshed it to. Any number of threads may ask while a refresh is under way; they get the old
    /// list or the new one, whole.
    pub fn tools(&self) -> Arc<[Tool]> {
        let tools = self.inner.tools.read();
        Arc::clone(&tools.unwrap_or_else(PoisonError::into_inner))
    }

    /// Lists the tools again, as when the server says that they changed; whether they did.
    pub(crate) async fn refresh(&self) -> Result<bool, ClientError> {
        let changed = self.inner.refresh_tools().await?;
        if changed {
            self.inner.updates.send_modify(|updates| updates.tools += 1);
        }
        Ok(changed)
    }

    /// Whether it is reached over HTTP, where nothing tells that a server went away.
    pub(crate) fn over_http(&self) -> bool {
        self.inner.over_http
    }

    /// Tells when lists change.
    pub fn updates(&self) -> watch::Receiver<Updates> {
        self.inner.updates.subscribe()
    }

    /// Calls a tool and flattens the result into plain text. A failure of the tool (`isError`) is text as well, not an
    /// error: whoever feeds it to a model lets the model read what went wrong and correct itself. Errors are what the
    /// protocol or the transport says.
    pub async fn call_tool(&self, name: &str, args: &Json) -> Result<String, ClientError> {
        self.call_tool_with(name, args, CallOptions::default())
            .await
    }

    /// The same with a timeout or progress of its own. Dropping the future cancels the call at the server.
    pub async fn call_tool_with(
        &self,
        name: &str,
        args: &Json,
        options: CallOptions,
    ) -> Result<String, ClientError> {
        let params = format!(
            r#"{{"name":{},"arguments":{}}}"#,
            Value::from(name),
            args.get()
        );
        let result = self.request(method::TOOLS_CALL, &params, options).await?;
        flatten::tool_result(&result)
            .map_err(|error| ClientError::answer(method::TOOLS_CALL, error.to_string()))
    }

    /// Every prompt template that the server has now. Asked anew each time, as with [`Client::list_resources`].
    pub async fn list_prompts(&self) -> Result<Vec<Prompt>, ClientError> {
        if self.inner.agreement().capabilities.prompts.is_none() {
            return Ok(Vec::new());
        }
        let pages = self.inner.pages(method::PROMPTS_LIST, "prompts").await?;
        Ok(pages.read(&self.inner.name, |prompt: &Prompt| &prompt.name))
    }

    /// Fills in a prompt template and flattens its messages to text.
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<String, ClientError> {
        let params = json!({ "name": name, "arguments": arguments }).to_string();
        let result = self
            .request(method::PROMPTS_GET, &params, CallOptions::default())
            .await?;
        Ok(flatten::prompt(&read(method::PROMPTS_GET, &result)?))
    }

    /// Every resource that the server has now. Unlike the tools, this is asked anew each time: such a list can be long or
    /// change often, and nobody needs an old copy of it in memory.
    pub async fn list_resources(&self) -> Result<Vec<Resource>, ClientError> {
        if self.inner.agreement().capabilities.resources.is_none() {
            return Ok(Vec::new());
        }
        let pages = self
            .inner
            .pages(method::RESOURCES_LIST, "resources")
            .await?;
        Ok(pages.read(&self.inner.name, |resource: &Resource| &resource.uri))
    }

    /// Reads one resource, flattened to text. Bytes are reported as a placeholder: results are text from end to end.
    pub async fn read_resource(&self, uri: &str) -> Result<String, ClientError> {
        let params = json!({ "uri": uri }).to_string();
        let result = self
            .request(method::RESOURCES_READ, &params, CallOptions::default())
            .await?;
        Ok(flatten::resource(&read(method::RESOURCES_READ, &result)?))
    }

    /// The items of a list as they come, page by page. Empty when the server does not know the method.
    pub(crate) async fn list_raw(
        &self,
        name: &'static str,
        key: &'static str,
    ) -> Result<Vec<Json>, ClientError> {
        match self.inner.pages(name, key).await {
            Ok(pages) => Ok(pages.items()),
            Err(ClientError::Rpc(error)) if error.code == ramen_mcp::code::METHOD_NOT_FOUND => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// What the server declares: `tools`, `prompts`, `resources`.
    pub fn offers(&self) -> Vec<String> {
        self.inner.agreement().capabilities.names()
    }

    /// Any request, with the result as it comes. `params` is the JSON text of an object.
    pub async fn request(
        &self,
        method: &str,
        params: &str,
        options: CallOptions,
    ) -> Result<Json, ClientError> {
        self.inner.request(method, params, options).await
    }

    /// Ready once the transport has gone away: the process ended, the connection dropped, or the client was closed. All
    /// requests that waited then have been answered with an error.
    pub async fn done(&self) {
        self.inner.peer.done().cancelled().await;
    }

    /// Whether that has happened.
    pub fn is_done(&self) -> bool {
        self.inner.peer.done().is_cancelled()
    }

    /// Shuts the server down and waits for its end: a program gets its stdin closed, then `SIGTERM`, then `SIGKILL`, and
    /// everything it started in its process group goes with it.
    pub async fn close(&self) {
        self.inner.peer.close().await;
    }

    /// The same with this long for all of it: a program gets half of it to end by itself, and half after `SIGTERM`. Makes an
    /// end shorter that is under way.
    pub async fn close_within(&self, patience: Duration) {
        self.inner.peer.close_within(patience).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.inner.peer.stop();
    }
}

impl Inner {
    fn agreement(&self) -> std::sync::RwLockReadGuard<'_, Agreement> {
        self.agreement
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

//! One connected server.

mod background;
mod options;
mod rounds;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ramen_mcp::Version;
use ramen_mcp::model::{Implementation, Json};
use ramen_mcp::names::method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::cache::{Cache, Entry};
use crate::config::{Fingerprint, ServerConfig, Transport};
use crate::error::ClientError;
use crate::flatten;
use crate::handshake::{self, Agreement, EraChoice, read};
use crate::limits::Limits;
use crate::list::{Pages, Prompt, Resource, Tool};
use crate::peer::{Ask, Peer};
use crate::transport::http::mirror;
use crate::transport::pipe::PipeWire;
use crate::transport::{Link, http, stdio};

pub use options::{Addresses, CallOptions, Elicit, Options, Progress, Updates};

/// Times that a modern server may ask to be asked again with its state.
const MAX_ROUNDS: usize = 8;

/// How long a connection may take when a person has to agree to it.
const PERSON: Duration = Duration::from_mins(6);

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
    /// How often the handshake was made; held while it is made again.
    session: tokio::sync::Mutex<u64>,
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
    /// Starts (or dials) one configured server, agrees on a revision of the protocol, and lists its tools. A server that
    /// fails any of that is an error here and contributes nothing; no other one is affected.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), ramen_client::ClientError> {
    /// use ramen_client::{Client, Json, Options, ServerConfig};
    ///
    /// let config = ServerConfig::stdio("uvx", ["mcp-server-time"]);
    /// let client = Client::connect("time", &config, &Options::default()).await?;
    /// let args = Json::from(&serde_json::json!({"timezone": "Europe/Berlin"}));
    /// println!("{}", client.call_tool("get_current_time", &args).await?);
    /// client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(
        name: &str,
        config: &ServerConfig,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let mut options = options.clone();
        if options.sign_in.is_some() && matches!(config.transport, Transport::Http { .. }) {
            // A person may have to agree first.
            let limits = &mut options.limits;
            limits.connect = limits.connect.max(PERSON);
            limits.probe = limits.probe.max(PERSON);
        }
        let options = &options;
        let patience = options.limits.connect;
        let connecting = async {
            let spoken = match config.era {
                EraChoice::Auto => last_spoken(name, config, options).await,
                _ => None,
            };
            let attempts: &[EraChoice] = match (config.era, spoken) {
                // A program that dies of a question it does not know is started again without it.
                (EraChoice::Auto, None) => &[EraChoice::Auto, EraChoice::Legacy],
                (EraChoice::Auto, Some(version)) if version.is_modern() => {
                    &[EraChoice::Modern, EraChoice::Auto]
                }
                (EraChoice::Auto, Some(_)) => &[EraChoice::Legacy, EraChoice::Auto],
                (EraChoice::Legacy, _) => &[EraChoice::Legacy],
                (EraChoice::Modern, _) => &[EraChoice::Modern],
            };
            let mut last = None;
            for choice in attempts {
                let link = open(name, config, options)?;
                match Self::over(name, config, options, link, *choice).await {
                    Err(error) if may_differ(&error) => last = Some(error),
                    outcome => return outcome,
                }
            }
            Err(last.unwrap_or_else(|| ClientError::gone("nothing was tried")))
        };
        tokio::time::timeout(patience, connecting)
            .await
            .unwrap_or_else(|_| {
                Err(ClientError::Timeout {
                    method: "the connection".to_owned(),
                    after: patience,
                })
            })
    }

    /// The same over a pair of streams that carry one message a line: a server in this process, a socket.
    pub async fn over_streams<R, W>(
        name: &str,
        input: R,
        output: W,
        era: EraChoice,
        options: &Options,
    ) -> Result<Self, ClientError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let link = PipeWire::open(input, output, options.limits.message);
        let config = ServerConfig::stdio(name, Vec::<String>::new());
        Self::over(name, &config, options, link, era).await
    }

    pub(crate) async fn over(
        name: &str,
        config: &ServerConfig,
        options: &Options,
        link: Link,
        era: EraChoice,
    ) -> Result<Self, ClientError> {
        let limits = options.limits;
        let peer = Peer::new(
            name,
            link,
            limits,
            config.redactor(),
            options.person.clone(),
        );
        let agreement = match handshake::agree(&peer, era, limits.probe, limits.connect).await {
            Ok(agreement) => agreement,
            Err(error) => {
                peer.close().await;
                return Err(error);
            }
        };
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            peer,
            fingerprint: config.fingerprint(),
            agreement: RwLock::new(agreement),
            session: tokio::sync::Mutex::new(0),
            tools: RwLock::new(Arc::from([])),
            updates: watch::Sender::new(Updates::default()),
            limits,
            timeout: config.timeout.unwrap_or(limits.request),
            over_http: matches!(config.transport, Transport::Http { .. }),
            cache: options.cache.clone(),
            person: options.person.clone(),
            config: config.clone(),
        });
        let client = Self { inner };
        // Changes that are told while the list is read count as later ones.
        let heard = client.inner.peer.changes();
        if let Err(error) = client.inner.refresh_tools().await {
            client.close().await;
            return Err(error);
        }
        background::start(&client.inner, heard);
        Ok(client)
    }

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

    async fn request(
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

    async fn pages(&self, name: &'static str, key: &'static str) -> Result<Pages<'_>, ClientError> {
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

    /// Lists the tools, keeps the list, and writes it to the cache. Whether it is another one.
    async fn refresh_tools(&self) -> Result<bool, ClientError> {
        let declared = self.agreement().capabilities.tools.is_some();
        let mut tools: Vec<Tool> = match self.pages(method::TOOLS_LIST, "tools").await {
            Ok(pages) => pages.read(&self.name, |tool: &Tool| &tool.name),
            // A server of resources alone need not know the method.
            Err(ClientError::Rpc(error))
                if !declared && error.code == ramen_mcp::code::METHOD_NOT_FOUND =>
            {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        tools.retain(|tool| self.config.allows(&tool.name));
        if self.over_http && self.agreement().version.is_modern() {
            tools.retain(|tool| match mirror::check(&tool.input_schema) {
                Ok(()) => true,
                Err(why) => {
                    tracing::warn!(
                        server = self.name,
                        tool = tool.name,
                        why,
                        "a tool is left out"
                    );
                    false
                }
            });
        }
        let tools: Arc<[Tool]> = tools.into();
        let changed = {
            let mut known = self.tools.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *known, Arc::clone(&tools));
            before != tools
        };
        self.remember(&tools).await;
        Ok(changed)
    }

    async fn remember(&self, tools: &[Tool]) {
        let Some(cache) = self.cache.clone() else {
            return;
        };
        let (version, server, offers) = {
            let agreement = self.agreement();
            let offers = agreement.capabilities.names();
            (agreement.version, agreement.server.clone(), offers)
        };
        let fingerprint = self.fingerprint.clone();
        let mut entry = Entry::now(fingerprint, version.as_str(), server, tools.to_vec());
        entry.offers = Some(offers);
        let name = self.name.clone();
        let written = tokio::task::spawn_blocking(move || cache.put(&name, entry)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(server = self.name, %error, "the list of tools is not remembered");
        }
    }
}

fn open(name: &str, config: &ServerConfig, options: &Options) -> Result<Link, ClientError> {
    let limits = &options.limits;
    match &config.transport {
        Transport::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            let program = stdio::Program {
                command,
                args,
                env,
                cwd: cwd.as_deref(),
            };
            stdio::start(name, &program, limits, config.redactor())
        }
        Transport::Http { url, headers } => {
            let (sign_in, addresses) = (options.sign_in.clone(), options.addresses.clone());
            http::open(name, url, headers, limits, sign_in, addresses)
        }
    }
}

/// Which revision the server spoke when it was last connected under this configuration.
async fn last_spoken(name: &str, config: &ServerConfig, options: &Options) -> Option<Version> {
    let cache = options.cache.clone()?;
    let (name, fingerprint) = (name.to_owned(), config.fingerprint());
    let entry = tokio::task::spawn_blocking(move || cache.get(&name, &fingerprint)).await;
    Version::parse(&entry.ok()??.protocol_version)
}

/// Whether another era may succeed where this one failed.
fn may_differ(error: &ClientError) -> bool {
    !matches!(
        error,
        ClientError::Spawn { .. }
            | ClientError::Connect { .. }
            | ClientError::SignIn { .. }
            | ClientError::SignInFailed { .. }
            | ClientError::Config { .. }
    )
}

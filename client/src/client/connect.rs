//! From a configuration to a connected server.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use ramen_mcp::Version;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::{Client, Inner, Options, Updates, background};
use crate::config::{ServerConfig, Transport};
use crate::error::ClientError;
use crate::handshake::{self, EraChoice};
use crate::peer::Peer;
use crate::transport::pipe::PipeWire;
use crate::transport::{Link, http, stdio};

/// How long a connection may take when a person has to agree to it.
const PERSON: Duration = Duration::from_mins(6);

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
            session: tokio::sync::Mutex::default(),
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
            let guard = options.guard.clone();
            stdio::start(name, &program, limits, config.redactor(), guard)
        }
        Transport::Http { url, headers } => {
            let (sign_in, addresses) = (options.sign_in.clone(), options.addresses.clone());
            let redactor = config.redactor();
            http::open(name, url, headers, limits, redactor, sign_in, addresses)
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

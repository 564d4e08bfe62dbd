//! How a connection begins: `initialize` of the eras with a handshake, `server/discover` of the one without.

use std::time::Duration;

use ramen_mcp::model::{Implementation, Json};
use ramen_mcp::names::{meta_key, method};
use ramen_mcp::version::{NEWEST, NEWEST_LEGACY};
use ramen_mcp::{Version, code};
use serde::Deserialize;

use crate::ask;
use crate::error::ClientError;
use crate::peer::{Ask, Peer};

/// Which era of the protocol is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Ask for the modern one, and take a handshake from a server that does not know it.
    #[default]
    Auto,
    /// With a handshake, without asking first.
    Legacy,
    /// Without a handshake or not at all.
    Modern,
}

/// What was agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    /// The revision spoken from now on.
    pub(crate) version: Version,
    /// Who the server says it is.
    pub(crate) server: Option<Implementation>,
    /// What it can.
    pub(crate) capabilities: Capabilities,
    /// What it says to the model.
    pub(crate) instructions: Option<String>,
}

/// What a server declares, as far as it matters to us. A member that is there counts, whatever it holds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Capabilities {
    pub(crate) tools: Option<Listed>,
    pub(crate) prompts: Option<Listed>,
    pub(crate) resources: Option<Listed>,
}

/// One kind of list.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Listed {
    /// The server tells when the list changes.
    pub(crate) list_changed: bool,
}

impl Capabilities {
    /// What is declared, by name.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = [
            ("tools", self.tools),
            ("prompts", self.prompts),
            ("resources", self.resources),
        ];
        let declared = all.into_iter().filter(|(_, listed)| listed.is_some());
        declared.map(|(name, _)| name.to_owned()).collect()
    }

    /// Whether any list may change.
    pub(crate) fn any_changes(&self) -> bool {
        [self.tools, self.prompts, self.resources]
            .iter()
            .flatten()
            .any(|listed| listed.list_changed)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult {
    protocol_version: String,
    #[serde(default)]
    capabilities: Option<Json>,
    #[serde(default)]
    server_info: Option<Json>,
    #[serde(default)]
    instructions: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoverResult {
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Option<Json>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default, rename = "_meta")]
    meta: Option<Json>,
}

#[derive(Deserialize)]
struct Supported {
    supported: Vec<String>,
}

/// Agrees on a revision. The probe of [`EraChoice::Auto`] is answered by any server, if only with an error; one that is
/// silent gets a handshake after `probe`.
pub(crate) async fn agree(
    peer: &Peer,
    choice: EraChoice,
    probe: Duration,
    patience: Duration,
) -> Result<Agreement, ClientError> {
    match choice {
        EraChoice::Legacy => initialize(peer, patience).await,
        EraChoice::Modern => discover(peer, NEWEST, patience).await,
        EraChoice::Auto => match discover(peer, NEWEST, probe.min(patience)).await {
            Ok(agreement) => Ok(agreement),
            // These end the connection, or need a person: a handshake would meet them again.
            Err(
                error @ (ClientError::Gone { .. }
                | ClientError::Connect { .. }
                | ClientError::SignIn { .. }
                | ClientError::SignInFailed { .. }),
            ) => Err(error),
            Err(error) => match other_modern(&error) {
                Some(version) => discover(peer, version, patience).await,
                None => match initialize(peer, patience).await {
                    Err(refused) => match other_modern(&refused) {
                        // A modern server that was too slow for the probe.
                        Some(version) => discover(peer, version, patience).await,
                        None => Err(refused),
                    },
                    agreement => agreement,
                },
            },
        },
    }
}

/// A modern revision that a refusal names and that we speak. `None` when the server is no modern one.
fn other_modern(error: &ClientError) -> Option<Version> {
    let ClientError::Rpc(error) = error else {
        return None;
    };
    match error.code {
        code::UNSUPPORTED_PROTOCOL_VERSION => {
            let supported: Supported = error.data.as_ref()?.to().ok()?;
            newest_modern(&supported.supported)
        }
        code::HEADER_MISMATCH | code::MISSING_CLIENT_CAPABILITY => Some(NEWEST),
        _ => None,
    }
}

fn newest_modern(names: &[String]) -> Option<Version> {
    let known = names.iter().filter_map(|name| Version::parse(name));
    known.filter(|version| version.is_modern()).max()
}

/// The handshake: `initialize`, then `notifications/initialized`, both together in time.
pub(crate) async fn initialize(peer: &Peer, patience: Duration) -> Result<Agreement, ClientError> {
    tokio::time::timeout(patience, shake_hands(peer, patience))
        .await
        .unwrap_or_else(|_| {
            Err(ClientError::Timeout {
                method: method::INITIALIZE.to_owned(),
                after: patience,
            })
        })
}

async fn shake_hands(peer: &Peer, patience: Duration) -> Result<Agreement, ClientError> {
    let name = method::INITIALIZE;
    let params = ask::initialize(NEWEST_LEGACY, peer.capabilities()).to_string();
    let ask = Ask::new(name).params(params).uncancellable();
    let answer = peer.ask(ask, patience).await?;
    let answer: InitializeResult = read(name, &answer)?;
    let version = Version::parse(&answer.protocol_version)
        .filter(|version| !version.is_modern())
        .ok_or_else(|| {
            let asked: String = answer.protocol_version.chars().take(40).collect();
            ClientError::answer(name, format!("its protocol version is {asked:?}"))
        })?;
    peer.speak(version);
    peer.send_initialized().await?;
    Ok(Agreement {
        version,
        server: lenient(answer.server_info.as_ref()),
        capabilities: lenient(answer.capabilities.as_ref()).unwrap_or_default(),
        instructions: answer.instructions,
    })
}

async fn discover(
    peer: &Peer,
    version: Version,
    patience: Duration,
) -> Result<Agreement, ClientError> {
    let name = method::DISCOVER;
    let answer = peer.ask(Ask::new(name).modern(version), patience).await?;
    let answer: DiscoverResult = read(name, &answer)?;
    let version = newest_modern(&answer.supported_versions).ok_or_else(|| {
        ClientError::answer(
            name,
            "it supports no revision without a handshake that we speak",
        )
    })?;
    peer.speak(version);
    Ok(Agreement {
        version,
        server: answer.meta.as_ref().and_then(server_info),
        capabilities: lenient(answer.capabilities.as_ref()).unwrap_or_default(),
        instructions: answer.instructions,
    })
}

/// Who a modern server is: on every result it gives, in `_meta`.
fn server_info(meta: &Json) -> Option<Implementation> {
    let mut members: std::collections::HashMap<String, Json> = meta.to().ok()?;
    lenient(members.remove(meta_key::SERVER_INFO).as_ref())
}

/// Something that helps but is not needed: nothing when it is not as it should be.
fn lenient<T: serde::de::DeserializeOwned>(json: Option<&Json>) -> Option<T> {
    json.and_then(|json| json.to().ok())
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(
    method: &str,
    answer: &Json,
) -> Result<T, ClientError> {
    answer
        .to()
        .map_err(|error| ClientError::answer(method, error.to_string()))
}

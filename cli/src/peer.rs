//! The MCP server that `call`, `ls`, `read` and `prompt` speak to. Which one that is, and how it is reached, is decided
//! here and nowhere else: the commands ask requests and read answers.

mod other;

use std::sync::Arc;

use ramen_proto::code_name;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::servers;
use crate::upstream::Upstream;
use other::Other;

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const RESOURCE_NOT_FOUND: i64 = -32002;

/// One server.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    server: Server,
}

#[derive(Debug, Clone)]
enum Server {
    /// A worker of ours, over gRPC.
    Worker(Upstream),
    /// Any other.
    Other(Arc<Other>),
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

impl Peer {
    /// The server that the flags, the environment or the running `ramen up` name. Connects on first use.
    pub(crate) fn open(connect: &ConnectArgs) -> Result<Self, Failure> {
        let server = match servers::named(connect)? {
            Some((name, config)) => {
                let options = servers::options(connect.timeout);
                Server::Other(Arc::new(Other::new(name, config, options)))
            }
            None if connect.config.is_some() => {
                return Err(Failure::usage(
                    "--config names a file of servers: say which of them with --server",
                ));
            }
            None => {
                if let Some((url, config)) = connect.gateway()? {
                    let options = servers::options_with_a_key(connect.timeout);
                    let gateway =
                        Other::new(url, config, options).with_key_of(connect.key_source());
                    Server::Other(Arc::new(gateway))
                } else {
                    Server::Worker(Upstream::new(connect.resolve()?))
                }
            }
        };
        Ok(Self { server })
    }

    /// Does the work of a command, and ends what was started for it.
    pub(crate) fn finish<T>(
        &self,
        runtime: &tokio::runtime::Runtime,
        work: impl Future<Output = T>,
    ) -> T {
        runtime.block_on(async {
            let done = work.await;
            if let Server::Other(other) = &self.server {
                other.close().await;
            }
            done
        })
    }

    /// Asks one request; `params` is JSON text, so numbers keep their digits.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &str,
    ) -> Result<Box<RawValue>, Failure> {
        match &self.server {
            Server::Worker(worker) => ask(worker, method, params).await,
            Server::Other(other) => other.request(method, params).await,
        }
    }

    /// All items of `tools/list` and its like, page by page.
    pub(crate) async fn list(&self, kind: &str) -> Result<Vec<Value>, Failure> {
        let method = format!("{kind}/list");
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        let mut seen = std::collections::HashSet::new();
        loop {
            let params = cursor
                .as_ref()
                .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = match (
                self.request(&method, &params.to_string()).await,
                &self.server,
            ) {
                // What a server of others does not have is an empty list.
                (Err(_), Server::Other(other)) if !other.offers(kind) => return Ok(items),
                (page, _) => page?,
            };
            let mut page: Value = serde_json::from_str(page.get()).map_err(|error| {
                Failure::error(format!("the answer of {method} cannot be read: {error}"))
            })?;
            if let Some(Value::Array(more)) = page.get_mut(kind).map(Value::take) {
                items.extend(more);
            }
            cursor = match page.get("nextCursor").and_then(Value::as_str) {
                None => return Ok(items),
                Some(next) => Some(next.to_owned()),
            };
            if !seen.insert(cursor.clone()) {
                return Err(Failure::error(format!(
                    "{method} gives the same cursor twice"
                )));
            }
        }
    }

    /// The item of a list whose `field` is `wanted`; else a message with those that are there.
    pub(crate) async fn find(
        &self,
        kind: &str,
        field: &str,
        wanted: &str,
    ) -> Result<Value, Failure> {
        let mut items = self.list(kind).await?;
        if let Some(at) = items.iter().position(|item| item[field] == wanted) {
            return Ok(items.swap_remove(at));
        }
        let there: Vec<&str> = items
            .iter()
            .filter_map(|item| item[field].as_str())
            .collect();
        let one = kind.trim_end_matches('s');
        Err(Failure::usage(if there.is_empty() {
            format!("there is no {one} {wanted:?}, and no other")
        } else {
            format!(
                "there is no {one} {wanted:?}; there are: {}",
                there.join(", ")
            )
        }))
    }
}

/// One request to a worker.
async fn ask(worker: &Upstream, method: &str, params: &str) -> Result<Box<RawValue>, Failure> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let reply = worker.call(body.into()).await.map_err(|status| {
        let (code, message) = (code_name(status.code()), status.message());
        let address = worker.address();
        Failure::transport(if message.contains(address) {
            format!("{code}: {message}")
        } else {
            format!("{code}: {message} ({address})")
        })
    })?;
    let answer: Answer<'_> = serde_json::from_slice(&reply)
        .map_err(|error| Failure::error(format!("the worker's answer is no JSON-RPC: {error}")))?;
    match answer {
        Answer {
            error: Some(error), ..
        } => Err(refusal(method, error.code, &error.message)),
        Answer {
            result: Some(result),
            ..
        } => Ok(result.to_owned()),
        Answer { .. } => Err(Failure::error(
            "the worker's answer has neither result nor error",
        )),
    }
}

/// How a command fails when the server says no.
fn refusal(method: &str, code: i64, message: &str) -> Failure {
    let message = format!("{message} (code {code})");
    match code {
        // What was asked for is not there, or not so: as when it is seen before it is sent.
        METHOD_NOT_FOUND | INVALID_PARAMS | RESOURCE_NOT_FOUND => Failure::usage(message),
        // The function of a resource raised; a tool's answer says so in its result.
        INTERNAL_ERROR if method == "resources/read" => Failure::tool(message),
        _ => Failure::error(message),
    }
}

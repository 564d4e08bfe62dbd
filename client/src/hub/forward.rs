//! Requests that one server answers.

use bytes::Bytes;
use ramen_mcp::envelope::Request;
use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use ramen_mcp::{Era, McpError, ProgressToken, RequestId, code, notify};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::answer::{self, Members};
use super::places::{At, Turn};
use super::{Hub, Origin, lock};
use crate::client::{CallOptions, Progress};

/// Reports that wait to be written.
const REPORTS: usize = 32;

/// A request of the caller, on its own.
#[derive(Debug)]
pub struct Asked {
    pub(super) id: RequestId,
    pub(super) era: Era,
    pub(super) method: String,
    /// JSON text of an object.
    pub(super) params: String,
    pub(super) progress: Option<ProgressToken>,
    /// Where it waits for its turn; who has none bounds the work otherwise.
    pub(super) line: Option<Turn>,
}

impl Asked {
    /// What a request of this era asks.
    pub fn new(request: &Request<'_>, era: Era) -> Self {
        Self {
            id: request.id.clone(),
            era,
            method: request.method.clone().into_owned(),
            params: request.params.as_json().unwrap_or("{}").to_owned(),
            progress: request.params.meta().progress.clone(),
            line: None,
        }
    }

    /// Waits for a place.
    pub(super) async fn place(&self, at: At) -> Option<OwnedSemaphorePermit> {
        self.line.as_ref()?.place(at).await
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    arguments: Option<Json>,
}

#[derive(Deserialize)]
struct Completed {
    #[serde(rename = "ref")]
    reference: Value,
    argument: Json,
    #[serde(default)]
    context: Option<Json>,
}

impl Hub {
    /// The answer to a request. Progress goes to `out` before it; dropping the future cancels it at its server.
    pub async fn answer(&self, asked: &Asked, out: &mpsc::Sender<Bytes>) -> Bytes {
        self.read_cache().await;
        let listed = {
            let _place = if self.asks_servers(&asked.method) {
                asked.place(At::Lists).await
            } else {
                None
            };
            self.list(&asked.method, asked.era).await
        };
        let result = match (listed, asked.method.as_str()) {
            (Some(list), _) => Ok(list),
            (None, method::TOOLS_CALL) => self.call(asked, out).await,
            (None, method::PROMPTS_GET) => self.prompt(asked).await,
            (None, method::RESOURCES_READ) => self.read(asked).await,
            (None, method::COMPLETE) => self.complete(asked).await,
            (None, other) => Err(McpError::new(
                code::METHOD_NOT_FOUND,
                format!("method not found: {other}"),
            )),
        };
        match result {
            Ok(result) => {
                let result = answer::fit(result, asked.era, &self.inner.info);
                answer::response(&asked.id, &result)
            }
            Err(error) => error.body(&asked.id),
        }
    }

    async fn call(&self, asked: &Asked, out: &mpsc::Sender<Bytes>) -> Result<Members, McpError> {
        let named: Named = read(&asked.params)?;
        let arguments = match &named.arguments {
            None => "{}",
            Some(arguments) if arguments.get() == "null" => "{}",
            Some(arguments) if arguments.get().starts_with('{') => arguments.get(),
            Some(_) => return Err(McpError::invalid_params("`arguments` must be an object")),
        };
        let Some(Origin { server, name }) = self.known_tool(&named.name).await else {
            let code = match asked.era {
                Era::Modern => code::INVALID_PARAMS,
                Era::Legacy(_) => code::METHOD_NOT_FOUND,
            };
            let name: String = named.name.escape_debug().take(128).collect();
            return Err(McpError::new(code, format!("unknown tool `{name}`")));
        };
        let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(name));
        let (progress, reports) = match &asked.progress {
            Some(_) => {
                let (sender, reports) = mpsc::channel(REPORTS);
                (Some(sender), Some(reports))
            }
            None => (None, None),
        };
        let options = CallOptions {
            timeout: None,
            progress,
        };
        let calling = async {
            let _place = asked.place(At::Server(server.clone())).await;
            let client = self.inner.manager.client(&server).await?;
            let result = client.request(method::TOOLS_CALL, &params, options).await?;
            answer::tool_result(&result, asked.era)
        };
        let reporting = async {
            if let (Some(token), Some(mut reports)) = (&asked.progress, reports) {
                while let Some(report) = reports.recv().await {
                    if let Some(message) = notify::progress(token, &payload(&report)) {
                        let _ = out.send(message).await;
                    }
                }
            }
        };
        // The reports end with the call, and the last of them is written before its answer.
        let (result, ()) = tokio::join!(calling, reporting);
        result.map_err(|error| self.failure(&server, error))
    }

    /// Only what nobody is known to have waits for servers that are being started.
    async fn known_tool(&self, name: &str) -> Option<Origin> {
        let known = |hub: &Self| hub.names().find(name).cloned();
        if let Some(origin) = known(self) {
            return Some(origin);
        }
        self.settled().await;
        known(self)
    }

    async fn prompt(&self, asked: &Asked) -> Result<Members, McpError> {
        let named: Named = read(&asked.params)?;
        let Origin { server, name } = self.known_prompt(asked, &named.name).await?;
        let mut params = answer::single("name", &name);
        if let Some(arguments) = named.arguments {
            params.insert("arguments".to_owned(), arguments);
        }
        self.pass(asked, &server, method::PROMPTS_GET, &params)
            .await
    }

    async fn known_prompt(&self, asked: &Asked, name: &str) -> Result<Origin, McpError> {
        let known = |hub: &Self| lock(&hub.inner.prompts).get(name).cloned();
        if let Some(origin) = known(self) {
            return Ok(origin);
        }
        self.settled().await;
        {
            let _place = asked.place(At::Lists).await;
            let _ = self.prompts().await;
        }
        known(self).ok_or_else(|| {
            let name: String = name.escape_debug().take(128).collect();
            McpError::invalid_params(format!("unknown prompt `{name}`"))
        })
    }

    /// Of a prompt's arguments; who could complete a URI is not known, so there are no values for it.
    async fn complete(&self, asked: &Asked) -> Result<Members, McpError> {
        let mut completed: Completed = read(&asked.params)?;
        if completed.reference["type"] != "ref/prompt" {
            return Ok(answer::single("completion", &json!({ "values": [] })));
        }
        let name = completed.reference["name"].as_str().unwrap_or_default();
        let Origin { server, name } = self.known_prompt(asked, name).await?;
        completed.reference["name"] = json!(name);
        let mut params = answer::single("ref", &completed.reference);
        params.insert("argument".to_owned(), completed.argument);
        if let Some(context) = completed.context {
            params.insert("context".to_owned(), context);
        }
        self.pass(asked, &server, method::COMPLETE, &params).await
    }

    pub(super) async fn pass(
        &self,
        asked: &Asked,
        server: &str,
        name: &str,
        params: &Members,
    ) -> Result<Members, McpError> {
        let passed = async {
            let _place = asked.place(At::Server(server.to_owned())).await;
            let client = self.inner.manager.client(server).await?;
            let params = serde_json::to_string(params)
                .map_err(|error| crate::ClientError::answer(name, error.to_string()))?;
            let result = client
                .request(name, &params, CallOptions::default())
                .await?;
            crate::handshake::read::<Members>(name, &result)
        };
        passed.await.map_err(|error| self.failure(server, error))
    }
}

pub(super) fn read<T: serde::de::DeserializeOwned>(params: &str) -> Result<T, McpError> {
    serde_json::from_str(params)
        .map_err(|_| McpError::invalid_params("a parameter is missing or of the wrong type"))
}

fn payload(report: &Progress) -> Vec<u8> {
    let mut payload = json!({ "progress": report.progress });
    if let Some(total) = report.total {
        payload["total"] = json!(total);
    }
    if let Some(message) = &report.message {
        payload["message"] = json!(message);
    }
    payload.to_string().into_bytes()
}

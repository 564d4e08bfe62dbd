//! The server, over stdio or Streamable HTTP.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, ListPromptsResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, PromptMessage, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, Role, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

#[derive(Clone)]
struct Server;

/// The lists are written as they go over the wire.
fn list<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn schema(fields: &[(&str, &str)]) -> Value {
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind})))
        .collect();
    let required: Vec<_> = fields.iter().map(|(name, _)| name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_resources()
                .enable_prompts()
                .build(),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        list(json!({"tools": [
            {"name": "add", "inputSchema": schema(&[("a", "integer"), ("b", "integer")]),
             "outputSchema": schema(&[("result", "integer")])},
            {"name": "fail", "inputSchema": schema(&[("why", "string")])},
            {"name": "steps", "inputSchema": schema(&[])},
        ]}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match &*request.name {
            "add" => {
                let sum = arguments["a"].as_i64().zip(arguments["b"].as_i64());
                CallToolResult::structured(json!({"result": sum.map(|(a, b)| a + b)}))
            }
            "fail" => {
                let why = arguments["why"].as_str().unwrap_or_default();
                CallToolResult::error(vec![ContentBlock::text(why)])
            }
            "steps" => {
                if let Some(token) = context.meta.get_progress_token() {
                    for step in 0..3 {
                        let told = ProgressNotificationParam::new(token.clone(), f64::from(step))
                            .with_total(3.0)
                            .with_message(format!("step {step}"));
                        let _ = context.peer.notify_progress(told).await;
                    }
                }
                text("done")
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        list(json!({"resources": [{"name": "text", "uri": "demo://text"}]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = ResourceContents::text("the text", request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        list(
            json!({"prompts": [{"name": "review", "arguments": [{"name": "code", "required": true}]}]}),
        )
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let code = arguments["code"].as_str().unwrap_or_default();
        let message = PromptMessage::new_text(Role::User, format!("Please review: {code}"));
        Ok(GetPromptResult::new(vec![message]).into())
    }
}

pub(crate) async fn stdio() -> anyhow::Result<()> {
    Server
        .serve(rmcp::transport::stdio())
        .await?
        .waiting()
        .await?;
    Ok(())
}

/// With sessions for those who begin with a handshake.
pub(crate) async fn http() -> anyhow::Result<()> {
    let service = StreamableHttpService::new(
        || Ok(Server),
        Arc::new(LocalSessionManager::default()),
        rmcp::transport::streamable_http_server::StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

//! The gRPC side of the load generator.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_client::McpClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

/// A client with its key; clones share the connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) channel: Channel,
    inner: McpClient<Channel>,
    key: Option<MetadataValue<Ascii>>,
}

impl Client {
    pub(crate) async fn connect(address: &str, key: Option<&str>) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .tcp_nodelay(true)
            .connect()
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        let key = key
            .map(|key| format!("Bearer {key}").parse())
            .transpose()
            .context("the key is no header value")?;
        let inner = McpClient::new(channel.clone()).max_decoding_message_size(8 << 20);
        Ok(Self {
            channel,
            inner,
            key,
        })
    }

    /// One message out, its answer back.
    pub(crate) async fn call(&mut self, body: Bytes) -> Result<Bytes, tonic::Status> {
        let mut request = tonic::Request::new(JsonRpc { body });
        if let Some(key) = &self.key {
            request.metadata_mut().insert("authorization", key.clone());
        }
        Ok(self.inner.call(request).await?.into_inner().body)
    }

    /// A `tools/call` whose text is expected to hold `wanted`.
    pub(crate) async fn tool(
        &mut self,
        name: &str,
        arguments: &serde_json::Value,
        wanted: &str,
    ) -> anyhow::Result<()> {
        let answer = self
            .call(tool_call(name, arguments))
            .await
            .with_context(|| format!("tool {name}"))?;
        let answer = String::from_utf8_lossy(&answer);
        if !answer.contains(wanted) || answer.contains(r#""isError":true"#) {
            bail!("tool {name} answered {answer}");
        }
        Ok(())
    }
}

/// The message of a `tools/call`.
pub(crate) fn tool_call(name: &str, arguments: &serde_json::Value) -> Bytes {
    let message = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments},
    });
    Bytes::from(message.to_string())
}

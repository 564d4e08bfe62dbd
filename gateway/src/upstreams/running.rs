//! One request at an upstream, as the messages that answer it.

use std::time::Duration;

use bytes::Bytes;
use ramen_client::hub::{Asked, Hub};
use ramen_mcp::{McpError, RequestId};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Messages that wait to be passed on.
const QUEUE: usize = 32;

/// What goes on at an upstream: progress, then the answer. Dropping it cancels the request.
pub(crate) struct Running {
    messages: mpsc::Receiver<Bytes>,
    task: JoinHandle<()>,
}

impl Running {
    /// Begins, with this long for all of it.
    pub(super) fn start(hub: Hub, id: RequestId, asked: Asked, limit: Duration) -> Self {
        let (out, messages) = mpsc::channel(QUEUE);
        let task = tokio::spawn(async move {
            let answer = tokio::time::timeout(limit, hub.answer(&asked, &out)).await;
            let answer = answer.unwrap_or_else(|_| {
                let error = McpError::internal("the upstream did not answer in time");
                error.with_data(&json!({ "reason": "timeout" })).body(&id)
            });
            let _ = out.send(answer).await;
        });
        Self { messages, task }
    }

    /// The next message; `None` after the answer.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.messages.recv().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

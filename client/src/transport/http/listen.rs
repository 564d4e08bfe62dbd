//! The stream of a legacy server's own messages: opened by `GET`, and opened again when it ends.

use ramen_mcp::Version;

use super::Shared;
use super::answer::{Kind, kind};
use super::sse::Parser;
use crate::backoff::{Backoff, BackoffPolicy, seed};
use crate::error::ClientError;

impl Shared {
    /// Keeps the stream open until the connection ends or the server does not offer one.
    pub(super) async fn listen(&self, version: Version) {
        let mut parser = Parser::new(self.limits.message);
        let mut backoff = Backoff::new(BackoffPolicy::default(), seed());
        loop {
            let opened = tokio::time::Instant::now();
            match self.events(version, parser.last_id.as_deref()).await {
                Ok(response)
                    if response.status().is_success()
                        && matches!(kind(&response), Kind::Events) =>
                {
                    parser.reopened();
                    match self.unasked(&mut parser, response).await {
                        // An empty stream must not be asked for again and again at once.
                        Ok(true) => backoff.lived(opened.elapsed()),
                        Ok(false) => {}
                        Err(error) => {
                            let (server, error) = (&self.server, error.chain());
                            tracing::warn!(server, error, "the stream of a server is broken");
                        }
                    }
                }
                Ok(response) if response.status().is_server_error() => {}
                // 405: it has none. Whatever else it says, requests work without it.
                Ok(_) => return,
                Err(ClientError::Connect { .. }) => {
                    let lost = self.state().lost();
                    if let Some(why) = lost {
                        return self.gone(why).await;
                    }
                }
                Err(_) => {}
            }
            let wait = backoff.next();
            tokio::time::sleep(parser.retry.map_or(wait, |retry| retry.max(wait))).await;
        }
    }
}

//! What a program says on stderr: logged at debug level, and the last lines kept to explain its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ramen_redact::Redactor;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};
use tokio::process::ChildStderr;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// How long the last lines may take to be read after the end. All of it is used up only when somebody else holds stderr.
const PATIENCE: Duration = Duration::from_secs(2);
/// Characters of the last lines that go into a message.
const SHOWN: usize = 500;

/// The last lines.
pub(super) struct Tail {
    lines: Mutex<VecDeque<String>>,
    closed: CancellationToken,
    keep: usize,
}

impl Tail {
    /// Reads stderr to its end, so that a program never waits for room in the pipe; not for longer than the program lives,
    /// since what it leaves behind may hold the pipe for ever.
    pub(super) fn read(
        server: &str,
        stderr: ChildStderr,
        limits: &Limits,
        redactor: Redactor,
        mut ended: watch::Receiver<Option<String>>,
    ) -> Arc<Self> {
        let tail = Arc::new(Self {
            lines: Mutex::default(),
            closed: CancellationToken::new(),
            keep: limits.stderr_lines,
        });
        let (kept, server, longest) = (Arc::clone(&tail), server.to_owned(), limits.stderr_line);
        tokio::spawn(async move {
            let mut input = BufReader::new(stderr);
            let reading = async {
                while let Some(line) = next(&mut input, longest.saturating_mul(2)).await {
                    let text = String::from_utf8_lossy(&line);
                    // Masked before it is cut: half a secret is not found any more.
                    let text = redactor.redact(text.trim_end());
                    let text: String = text.chars().take(longest).collect();
                    if text.is_empty() {
                        continue;
                    }
                    tracing::debug!(server, line = %text, "stderr of a server");
                    kept.push(text);
                }
            };
            let over = async {
                // The sender is the keeper's, which says so before it goes.
                let _ = ended.wait_for(Option::is_some).await;
                tokio::time::sleep(PATIENCE).await;
            };
            tokio::select! {
                () = reading => {}
                () = over => {}
            }
            kept.closed.cancel();
        });
        tail
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= self.keep {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// What was said last, on one line.
    pub(super) async fn last(&self) -> Option<String> {
        let _ = tokio::time::timeout(PATIENCE, self.closed.cancelled()).await;
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = lines.iter().cloned().collect::<Vec<_>>().join(" | ");
        let skip = text.chars().count().saturating_sub(SHOWN);
        let text: String = text
            .chars()
            .skip(skip)
            .filter(|c| !c.is_control())
            .collect();
        (!text.is_empty()).then_some(text)
    }
}

/// The next line, cut at `longest` bytes. `None` at the end.
async fn next<R: AsyncBufRead + Unpin>(input: &mut R, longest: usize) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let mut seen = false;
    loop {
        let chunk = input.fill_buf().await.ok()?;
        if chunk.is_empty() {
            return seen.then_some(line);
        }
        seen = true;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let room = longest.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        let used = end.map_or(chunk.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Some(line);
        }
    }
}

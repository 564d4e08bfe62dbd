//! What user code prints: lines of stdout and stderr, bounded.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;

/// Longest line that is kept; the rest of it is dropped.
const MAX_LINE: usize = 8 * 1024;

/// Reads `pipe` to its end and gives each line to `line`.
pub(super) fn read_lines(pipe: OwnedFd, line: impl FnMut(String) + Send + 'static) {
    match pipe::Receiver::from_owned_fd(pipe) {
        Ok(receiver) => drop(tokio::spawn(async move {
            // The end of the pipe, or an error on it, ends the task: there is nobody to tell.
            let _ = copy_lines(receiver, line).await;
        })),
        Err(error) => tracing::warn!(%error, "cannot read the output of a host"),
    }
}

async fn copy_lines(
    mut pipe: impl AsyncRead + Unpin,
    mut line: impl FnMut(String),
) -> io::Result<()> {
    let mut chunk = Vec::with_capacity(4096);
    let mut kept: Vec<u8> = Vec::new();
    loop {
        chunk.clear();
        if pipe.read_buf(&mut chunk).await? == 0 {
            if !kept.is_empty() {
                line(text(&kept));
            }
            return Ok(());
        }
        let mut rest = chunk.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = rest.split_at(at);
            keep(&mut kept, head);
            line(text(&kept));
            kept.clear();
            rest = tail.get(1..).unwrap_or_default();
        }
        keep(&mut kept, rest);
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_LINE.saturating_sub(kept.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

fn text(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> Vec<String> {
        let mut seen = Vec::new();
        copy_lines(input, |line| seen.push(line)).await.unwrap();
        seen
    }

    #[tokio::test]
    async fn lines_are_cut_and_the_last_needs_no_newline() {
        assert_eq!(lines(b"a\r\n\nb").await, ["a", "", "b"]);
    }

    #[tokio::test]
    async fn a_long_line_is_cut_off_and_the_next_is_whole() {
        let mut input = vec![b'x'; 3 * MAX_LINE];
        input.extend_from_slice(b"\nnext\n");
        let seen = lines(&input).await;
        assert_eq!(
            seen.iter().map(String::len).collect::<Vec<_>>(),
            [MAX_LINE, 4]
        );
    }

    #[tokio::test]
    async fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(lines(b"\xff\n").await, ["\u{fffd}"]);
    }
}

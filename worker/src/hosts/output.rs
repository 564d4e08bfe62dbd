//! What user code prints: lines of stdout and stderr, bounded.

use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Longest line that is kept; the rest of it is dropped.
const MAX_LINE: usize = 8 * 1024;

/// Bytes that are still read after the host ended: what a full pipe holds. A process that it left behind may hold the
/// other end of the pipe, and write, for ever.
const LAST_BYTES: usize = 64 * 1024;

/// Reads `pipe` to its end, or until `ended` and what was written by then, and gives each line to `line`.
pub(super) fn read_lines(
    pipe: OwnedFd,
    ended: impl Future<Output = ()> + Send + 'static,
    line: impl FnMut(String) + Send + 'static,
) {
    match pipe::Receiver::from_owned_fd(pipe) {
        Ok(receiver) => drop(tokio::spawn(copy_lines(receiver, ended, line))),
        Err(error) => tracing::warn!(%error, "cannot read the output of a host"),
    }
}

async fn copy_lines(
    mut pipe: pipe::Receiver,
    ended: impl Future<Output = ()>,
    line: impl FnMut(String),
) {
    let mut lines = Lines {
        kept: Vec::new(),
        line,
    };
    let mut chunk = Vec::with_capacity(4096);
    tokio::pin!(ended);
    loop {
        chunk.clear();
        tokio::select! {
            biased;
            // First: a pipe that never runs dry must not keep it waiting.
            () = &mut ended => {
                last_lines(&pipe, &mut lines);
                break;
            }
            read = pipe.read_buf(&mut chunk) => match read {
                // The end of the pipe, or an error on it: there is nobody to tell.
                Ok(0) | Err(_) => break,
                Ok(_) => lines.take(&chunk),
            },
        }
    }
    lines.finish();
}

/// What the pipe holds now, without waiting for more. Asked of the system itself: the runtime may not have heard yet that
/// there is something.
fn last_lines(pipe: &pipe::Receiver, lines: &mut Lines<impl FnMut(String)>) {
    let mut chunk = [0; 4096];
    let mut left = LAST_BYTES;
    while left > 0 {
        match rustix::io::read(pipe, &mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                lines.take(chunk.get(..read).unwrap_or_default());
                left = left.saturating_sub(read);
            }
            Err(rustix::io::Errno::INTR) => {}
            // Empty (the pipe never blocks), or broken.
            Err(_) => return,
        }
    }
}

/// Cuts bytes into lines.
struct Lines<F> {
    kept: Vec<u8>,
    line: F,
}

impl<F: FnMut(String)> Lines<F> {
    fn take(&mut self, mut rest: &[u8]) {
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = rest.split_at(at);
            keep(&mut self.kept, head);
            (self.line)(text(&self.kept));
            self.kept.clear();
            rest = tail.get(1..).unwrap_or_default();
        }
        keep(&mut self.kept, rest);
    }

    fn finish(&mut self) {
        if !self.kept.is_empty() {
            (self.line)(text(&self.kept));
        }
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
    use std::io::Write as _;

    use super::*;

    async fn lines(input: &[u8]) -> Vec<String> {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let input = input.to_vec();
        let writing = std::thread::spawn(move || writer.write_all(&input));
        let seen = read(reader.into(), std::future::pending()).await;
        writing.join().unwrap().unwrap();
        seen
    }

    async fn read(pipe: OwnedFd, ended: impl Future<Output = ()>) -> Vec<String> {
        let receiver = pipe::Receiver::from_owned_fd(pipe).unwrap();
        let mut seen = Vec::new();
        copy_lines(receiver, ended, |line| seen.push(line)).await;
        seen
    }

    #[tokio::test]
    async fn a_process_that_keeps_the_pipe_does_not_keep_the_reader() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"last words\nand half a line").unwrap();
        let seen = read(reader.into(), std::future::ready(())).await;
        assert_eq!(seen, ["last words", "and half a line"]);
        // The reader's end is closed: whoever still writes is told.
        let error = writer.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
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

//! The socket that `ramen poke` speaks to: one line in, one line out.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

const MAX_LINE: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(5);

/// Listens at `path`; whatever an earlier run left there goes away (the caller holds the lock).
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // The folder may be one that others work in too.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// What is asked through the socket.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    /// Look at the source now.
    Look,
    /// Look, and try again what failed before.
    Again,
    /// Read the keys again.
    Keys,
}

/// Answers for ever. `act` gets the group's name (empty: all); it says what went wrong.
pub(super) async fn serve(
    listener: UnixListener,
    act: impl Fn(Asked, &str) -> Result<usize, String>,
) {
    loop {
        match listener.accept().await {
            // One at a time: an answer takes microseconds, and a silent peer is cut off.
            Ok((stream, _)) => {
                let _ = tokio::time::timeout(PATIENCE, answer(stream, &act)).await;
            }
            Err(error) => {
                tracing::warn!(error = %error, "the control socket failed");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(
    mut stream: UnixStream,
    act: &impl Fn(Asked, &str) -> Result<usize, String>,
) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    BufReader::new(read.take(MAX_LINE))
        .read_line(&mut line)
        .await?;
    let asked = match line.trim_end_matches(['\r', '\n']).split_once(' ') {
        Some(("poke", group)) => act(Asked::Look, group.trim()),
        Some(("retry", group)) => act(Asked::Again, group.trim()),
        Some(("keys", group)) => act(Asked::Keys, group.trim()),
        _ => Err("unknown request".to_owned()),
    };
    let answer = match asked {
        Ok(count) => format!("ok {count}\n"),
        Err(why) => format!("error {why}\n"),
    };
    write.write_all(answer.as_bytes()).await
}

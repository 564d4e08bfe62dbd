//! Signals as futures.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves at the first SIGINT or SIGTERM.
pub(crate) async fn stop() {
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

//! Signals as futures.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves at the next SIGINT or SIGTERM; the handlers are in place when this returns.
pub(crate) fn stop() -> impl Future<Output = ()> {
    let handlers = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    async move {
        let (Ok(mut term), Ok(mut int)) = handlers else {
            // Without handlers the signals end the process by themselves.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    }
}

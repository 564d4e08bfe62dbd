//! Signals as futures.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Resolves at the next SIGINT or SIGTERM; the handlers are in place when this returns.
pub(crate) fn stop() -> impl Future<Output = ()> {
    let handlers = handlers();
    async move {
        let Some(mut handlers) = handlers else {
            // Without handlers the signals end the process by themselves.
            return std::future::pending().await;
        };
        next(&mut handlers).await;
    }
}

/// Every SIGINT and SIGTERM from now on, counted.
#[derive(Clone)]
pub(crate) struct Stops(watch::Receiver<u32>);

impl Stops {
    /// Counts until the runtime ends; the handlers are in place when this returns.
    pub(crate) fn count() -> Self {
        let (count, counted) = watch::channel(0);
        let handlers = handlers();
        tokio::spawn(async move {
            if let Some(mut handlers) = handlers {
                loop {
                    next(&mut handlers).await;
                    count.send_modify(|count| *count += 1);
                }
            }
        });
        Self(counted)
    }

    /// How many there were.
    pub(crate) fn so_far(&self) -> u32 {
        *self.0.borrow()
    }

    /// Waits until there were so many.
    pub(crate) async fn reach(mut self, many: u32) {
        if self.0.wait_for(|count| *count >= many).await.is_err() {
            // Nobody counts: there are no handlers.
            std::future::pending::<()>().await;
        }
    }
}

fn handlers() -> Option<(Signal, Signal)> {
    let term = signal(SignalKind::terminate()).ok()?;
    Some((term, signal(SignalKind::interrupt()).ok()?))
}

async fn next((term, int): &mut (Signal, Signal)) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

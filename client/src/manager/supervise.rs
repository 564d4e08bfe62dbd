//! One task per server: waits for its end, then connects it again.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Inner, State};
use crate::backoff::{Backoff, seed};
use crate::client::{Client, Updates};

/// Why supervision goes on or does not.
enum Next {
    Lost { lived: std::time::Duration },
    Stopped,
}

impl Inner {
    /// Starts the supervision of a server, connected or not. `false` when the manager is closed already.
    pub(super) fn supervise(self: &Arc<Self>, name: String, client: Option<Arc<Client>>) -> bool {
        if self.supervisors.is_closed() {
            return false;
        }
        let inner = Arc::clone(self);
        self.supervisors
            .spawn(async move { inner.run(&name, client).await });
        true
    }

    async fn run(&self, name: &str, mut client: Option<Arc<Client>>) {
        let mut backoff = Backoff::new(self.options.backoff, seed());
        loop {
            if let Some(client) = client.take() {
                match self.watch(&client).await {
                    Next::Stopped => return,
                    Next::Lost { lived } => {
                        backoff.lived(lived);
                        self.lost(name, &client);
                        // What is left of it: pipes, a process that closed only its stdout.
                        client.close().await;
                    }
                }
            }
            let wait = backoff.next();
            tracing::info!(
                server = name,
                wait_ms = wait.as_millis(),
                "connecting again after a wait"
            );
            let config = match self.slots().get(name) {
                Some(slot) => slot.config.clone(),
                None => return,
            };
            let again = async {
                tokio::time::sleep(wait).await;
                self.connect(name, &config).await
            };
            let again = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                again = again => again,
            };
            match again {
                Ok(connected) => {
                    let connected = Arc::new(connected);
                    tracing::info!(
                        server = name,
                        tools = connected.tools().len(),
                        "connected again"
                    );
                    self.arrived(name, &connected);
                    client = Some(connected);
                }
                Err(error) => self.failed(name, &error.chain()),
            }
        }
    }

    /// Waits for the end of a client, and passes on what it tells of its lists.
    async fn watch(&self, client: &Client) -> Next {
        let born = Instant::now();
        let mut updates = client.updates();
        let mut seen = *updates.borrow();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Next::Stopped,
                () = client.done() => return Next::Lost { lived: born.elapsed() },
                changed = updates.changed() => if changed.is_err() {
                    return Next::Lost { lived: born.elapsed() };
                },
            }
            let now = *updates.borrow_and_update();
            self.updates.send_modify(|all| {
                all.tools += now.tools - seen.tools;
                all.prompts += now.prompts - seen.prompts;
                all.resources += now.resources - seen.resources;
            });
            seen = now;
        }
    }

    /// A server is there.
    pub(super) fn arrived(&self, name: &str, client: &Arc<Client>) {
        if let Some(slot) = self.slots().get_mut(name) {
            slot.tools = client.tools();
            slot.offers = Some(client.offers().into());
            slot.client = Some(Arc::clone(client));
            slot.state = State::Up;
        }
        self.everything_changed();
    }

    /// A server went away. Its last tools are kept; another client of the same name is left alone.
    fn lost(&self, name: &str, client: &Arc<Client>) {
        tracing::warn!(server = name, "the server went away");
        if let Some(slot) = self.slots().get_mut(name)
            && slot
                .client
                .as_ref()
                .is_some_and(|there| Arc::ptr_eq(there, client))
        {
            slot.tools = client.tools();
            slot.client = None;
            slot.state = State::Down {
                why: "the server went away".to_owned(),
                retrying: true,
            };
        }
        self.everything_changed();
    }

    fn failed(&self, name: &str, why: &str) {
        tracing::warn!(server = name, error = why, "not connected again yet");
        if let Some(slot) = self.slots().get_mut(name) {
            slot.state = State::Down {
                why: why.to_owned(),
                retrying: true,
            };
        }
    }

    fn everything_changed(&self) {
        self.updates.send_modify(|all| {
            *all = Updates {
                tools: all.tools + 1,
                prompts: all.prompts + 1,
                resources: all.resources + 1,
            };
        });
    }
}

//! One task per server: waits for its end, then connects it again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lists::Look;
use super::{Inner, State};
use crate::backoff::{Backoff, seed};
use crate::client::{Client, Updates};

/// How supervision begins.
pub(super) enum Begin {
    /// With a server that is connected.
    With(Arc<Client>),
    /// With an attempt to connect it.
    AtOnce,
    /// With one that failed just now.
    AfterWait,
}

/// Why supervision goes on or does not.
enum Next {
    Lost { lived: Duration },
    Stopped,
}

impl Inner {
    /// Starts the supervision of a server. `false` when the manager is closed already, or does not know the server.
    pub(super) fn supervise(self: &Arc<Self>, name: String, begin: Begin) -> bool {
        if self.supervisors.is_closed() {
            return false;
        }
        let Some(stop) = self.slots().get(&name).map(|slot| slot.stop.clone()) else {
            return false;
        };
        let inner = Arc::clone(self);
        self.supervisors
            .spawn(async move { inner.run(&name, begin, &stop).await });
        true
    }

    async fn run(&self, name: &str, begin: Begin, stop: &CancellationToken) {
        let mut backoff = Backoff::new(self.options.backoff, seed());
        let (mut client, mut wait) = match begin {
            Begin::With(client) => (Some(client), Duration::ZERO),
            Begin::AtOnce => (None, Duration::ZERO),
            Begin::AfterWait => (None, backoff.next()),
        };
        loop {
            if let Some(client) = client.take() {
                match self.watch(name, &client, stop).await {
                    Next::Stopped => return,
                    Next::Lost { lived } => {
                        backoff.lived(lived);
                        self.lost(name, &client);
                        // What is left of it: pipes, a process that closed only its stdout.
                        tokio::select! {
                            biased;
                            () = self.stop.cancelled() => return self.leaving().push(client),
                            () = client.close() => {}
                        }
                    }
                }
                wait = backoff.next();
            }
            if !wait.is_zero() {
                tracing::info!(
                    server = name,
                    wait_ms = wait.as_millis(),
                    "connecting again after a wait"
                );
            }
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
                () = stop.cancelled() => return,
                again = again => again,
            };
            match again {
                Ok(connected) => {
                    let connected = Arc::new(connected);
                    tracing::info!(
                        server = name,
                        info = connected.server_info(),
                        tools = connected.tools().len(),
                        "connected"
                    );
                    // Stopped in this moment: the slot may be another one's already.
                    if !self.arrived_for(name, &connected, stop) {
                        tokio::select! {
                            biased;
                            // The manager closes it with all others, in the time that it has.
                            () = self.stop.cancelled() => self.leaving().push(connected),
                            () = connected.close() => {}
                        }
                        return;
                    }
                    client = Some(connected);
                }
                Err(error) => {
                    if !self.failed(name, &error.chain(), stop) {
                        return;
                    }
                    wait = backoff.next();
                }
            }
        }
    }

    /// Waits for the end of a client, and passes on what it tells of its lists.
    async fn watch(&self, name: &str, client: &Client, stop: &CancellationToken) -> Next {
        let born = Instant::now();
        let lost = || Next::Lost {
            lived: born.elapsed(),
        };
        let mut updates = client.updates();
        let mut seen = *updates.borrow();
        let mut look = self
            .options
            .keep_lists
            .map(|every| Look::new(every, client));
        loop {
            let due = async {
                match &look {
                    Some(look) => look.due().await,
                    None => std::future::pending().await,
                }
            };
            let looks = tokio::select! {
                biased;
                () = stop.cancelled() => return Next::Stopped,
                () = client.done() => return lost(),
                changed = updates.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return lost(),
                },
                () = due => true,
            };
            // News that come meanwhile wait: a look that each of them began anew would never end.
            if looks && let Some(look) = &mut look {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Next::Stopped,
                    () = client.done() => return lost(),
                    () = look.run(self, name, client) => continue,
                }
            }
            let now = *updates.borrow_and_update();
            let news = Updates {
                tools: now.tools - seen.tools,
                prompts: now.prompts - seen.prompts,
                resources: now.resources - seen.resources,
            };
            seen = now;
            match &mut look {
                // Those of kept lists are told once they can be had.
                Some(look) => {
                    look.want(&news);
                    self.tell(&Updates {
                        tools: news.tools,
                        ..Updates::default()
                    });
                }
                None => self.tell(&news),
            }
        }
    }

    /// A server is there.
    pub(super) fn arrived(&self, name: &str, client: &Arc<Client>) {
        if let Some(slot) = self.slots().get_mut(name) {
            slot.arrive(client);
        }
        self.everything_changed();
    }

    /// The same for the one who supervises it, unless another one does by now.
    fn arrived_for(&self, name: &str, client: &Arc<Client>, stop: &CancellationToken) -> bool {
        {
            let mut slots = self.slots();
            let Some(slot) = slots.get_mut(name).filter(|_| !stop.is_cancelled()) else {
                return false;
            };
            slot.arrive(client);
        }
        self.everything_changed();
        true
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
            slot.become_down("the server went away", true);
        }
        self.everything_changed();
    }

    /// It could not be connected; whether it is still this one's to try.
    fn failed(&self, name: &str, why: &str, stop: &CancellationToken) -> bool {
        let news = {
            let mut slots = self.slots();
            let Some(slot) = slots.get_mut(name).filter(|_| !stop.is_cancelled()) else {
                return false;
            };
            // One of another configuration that served until now.
            slot.client = None;
            let again = matches!(&slot.state, State::Down { why: before, .. } if before == why);
            if !again {
                tracing::warn!(server = name, error = why, "not connected yet");
            }
            slot.become_down(why, true)
        };
        if news {
            self.everything_changed();
        }
        true
    }

    pub(super) fn everything_changed(&self) {
        self.tell(&Updates {
            tools: 1,
            prompts: 1,
            resources: 1,
        });
    }

    pub(super) fn tell(&self, news: &Updates) {
        self.updates.send_if_modified(|all| {
            all.tools += news.tools;
            all.prompts += news.prompts;
            all.resources += news.resources;
            *news != Updates::default()
        });
    }
}

//! Another set of servers, while those that stay go on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::supervise::Begin;
use super::{Manager, Slot, State};
use crate::config::ServerConfig;

impl Manager {
    /// Has exactly these servers from now on; for one that cannot be reached as it is configured, why. Nothing is waited
    /// for: each new one is connected, and tried again, by a task of its own. One whose configuration changed goes on
    /// under the old one until the new one is connected or fails; one that is not wanted any more is closed when its last
    /// call has ended.
    pub fn replace(&self, servers: BTreeMap<String, Result<ServerConfig, String>>) {
        let inner = &self.inner;
        let mut begun = Vec::new();
        // Whether what is listed, or how it is marked, is not what it was.
        let mut news = false;
        {
            let mut slots = inner.slots();
            slots.retain(|name, slot| {
                let stays = servers.contains_key(name);
                if !stays {
                    slot.stop.cancel();
                    news = true;
                }
                stays
            });
            for (name, config) in servers {
                let before = slots.remove(&name);
                let (slot, new) = match (config, before) {
                    (Ok(config), Some(slot)) if slot.config == config && !slot.refused => {
                        (slot, false)
                    }
                    (Ok(config), before) => {
                        let slot = Slot::new(config, State::Connecting, inner.stop.child_token());
                        let slot = if let Some(before) = before {
                            news |= !slot.lists_like(&before);
                            slot.after(before)
                        } else {
                            news = true;
                            slot
                        };
                        (slot, true)
                    }
                    (Err(why), Some(slot)) if slot.is_refused_for(&why) => (slot, false),
                    (Err(why), Some(slot)) => {
                        news = true;
                        (slot.refuse(&why), false)
                    }
                    (Err(why), None) => {
                        news = true;
                        // Never used: what is refused is not connected.
                        let nothing = ServerConfig::stdio("", Vec::<String>::new());
                        let slot = Slot::new(nothing, State::Connecting, inner.stop.child_token());
                        (slot.refuse(&why), false)
                    }
                };
                slots.insert(name.clone(), slot);
                if new {
                    begun.push(name);
                }
            }
        }
        for name in begun {
            inner.supervise(name, Begin::AtOnce);
        }
        if news {
            inner.everything_changed();
        }
    }

    /// Waits until every server was tried once, but not longer than this.
    pub async fn settled(&self, patience: Duration) {
        let mut updates = self.updates();
        let settled = async {
            loop {
                updates.borrow_and_update();
                let connecting = |slot: &Slot| slot.state == State::Connecting;
                if !self.inner.slots().values().any(connecting) || updates.changed().await.is_err()
                {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(patience, settled).await;
    }
}

impl Slot {
    /// Whether it lists what that one listed, as long as nobody hears otherwise.
    fn lists_like(&self, before: &Self) -> bool {
        before.config.same_server(&self.config)
            && before.config.allowed_tools == self.config.allowed_tools
    }

    fn is_refused_for(&self, why: &str) -> bool {
        self.refused && matches!(&self.state, State::Down { why: before, .. } if before == why)
    }

    /// Takes over what is still true under another configuration of the same name.
    fn after(mut self, before: Self) -> Self {
        before.stop.cancel();
        // Tools of another server would be lies under this name.
        if !before.config.same_server(&self.config) {
            return self;
        }
        let tools = before
            .client
            .as_ref()
            .map_or(before.tools, |client| client.tools());
        let allowed = tools.iter().filter(|tool| self.config.allows(&tool.name));
        self.tools = allowed.cloned().collect();
        self.lists = before.lists;
        self.offers = before.offers;
        self.state = before.state;
        self.since = before.since;
        // The old client lists what it was allowed to.
        self.client = before
            .client
            .filter(|_| before.config.allowed_tools == self.config.allowed_tools);
        self
    }

    /// Its last lists stay; it is not connected any more.
    fn refuse(mut self, why: &str) -> Self {
        self.stop.cancel();
        if let Some(client) = self.client.take() {
            self.tools = client.tools();
        }
        self.refused = true;
        self.become_down(why, false);
        self
    }
}

//! Lists that are kept: what a server offers beside its tools, asked for when it may have changed and not when somebody
//! wants to see it.

use std::sync::Arc;
use std::time::Duration;

use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use tokio::time::Instant;

use super::{Inner, Slot, State};
use crate::backoff::{Backoff, BackoffPolicy, seed};
use crate::client::{Client, Updates};
use crate::error::ClientError;

/// What a server lists beside its tools: definitions as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Of `prompts/list`.
    pub prompts: Arc<[Json]>,
    /// Of `resources/list`.
    pub resources: Arc<[Json]>,
    /// Of `resources/templates/list`.
    pub templates: Arc<[Json]>,
}

/// As good as never.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// When and what is to be asked next of one server.
pub(super) struct Look {
    every: Duration,
    over_http: bool,
    wanted: Wanted,
    at: Instant,
    backoff: Backoff,
}

/// Which lists.
#[derive(Clone, Copy)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl Look {
    /// The tools of a server that was connected just now are known.
    pub(super) fn new(every: Duration, client: &Client) -> Self {
        let policy = BackoffPolicy {
            max: every,
            ..BackoffPolicy::default()
        };
        Self {
            every,
            over_http: client.over_http(),
            wanted: Wanted {
                tools: false,
                prompts: true,
                resources: true,
            },
            at: Instant::now(),
            backoff: Backoff::new(policy, seed()),
        }
    }

    /// The server says that these changed.
    pub(super) fn want(&mut self, news: &Updates) {
        self.wanted.prompts |= news.prompts > 0;
        self.wanted.resources |= news.resources > 0;
        if self.wanted.prompts || self.wanted.resources {
            self.at = self.at.min(Instant::now());
        }
    }

    /// Waits until it is time.
    pub(super) async fn due(&self) {
        tokio::time::sleep_until(self.at).await;
    }

    /// Looks once.
    pub(super) async fn run(&mut self, inner: &Inner, name: &str, client: &Client) {
        let looked = self.look(inner, name, client).await;
        let now = Instant::now();
        match looked {
            Ok(()) => {
                self.backoff.lived(Duration::MAX);
                // A program says when its lists change, and its end is noticed.
                let all = self.over_http;
                self.wanted = Wanted {
                    tools: all,
                    prompts: all,
                    resources: all,
                };
                self.at = now + if all { self.every } else { NEVER };
                inner.answers(name);
            }
            Err(error) => {
                self.at = now + self.backoff.next();
                let why = error.chain();
                // A program that is busy with one call may be slow with a list.
                if self.over_http {
                    inner.silent(name, &why);
                } else {
                    tracing::warn!(
                        server = name,
                        error = why,
                        "a list of a server cannot be had"
                    );
                }
            }
        }
    }

    async fn look(
        &mut self,
        inner: &Inner,
        name: &str,
        client: &Client,
    ) -> Result<(), ClientError> {
        if self.wanted.tools {
            // Whoever hears of other tools hears it of the client.
            client.refresh().await?;
            self.wanted.tools = false;
        }
        let offers = client.offers();
        let offers = |kind: &str| offers.iter().any(|offer| offer == kind);
        if self.wanted.prompts && offers("prompts") {
            let prompts = client.list_raw(method::PROMPTS_LIST, "prompts").await?;
            self.wanted.prompts = false;
            let changed = inner.keep(name, |slot| replace(&mut slot.lists.prompts, prompts));
            inner.tell(&Updates {
                prompts: changed.into(),
                ..Updates::default()
            });
        }
        if self.wanted.resources && offers("resources") {
            let resources = client.list_raw(method::RESOURCES_LIST, "resources").await?;
            let templates = client
                .list_raw(method::TEMPLATES_LIST, "resourceTemplates")
                .await?;
            self.wanted.resources = false;
            let changed = inner.keep(name, |slot| {
                replace(&mut slot.lists.resources, resources)
                    | replace(&mut slot.lists.templates, templates)
            });
            inner.tell(&Updates {
                resources: changed.into(),
                ..Updates::default()
            });
        }
        Ok(())
    }
}

/// Whether the new list is another one.
fn replace(list: &mut Arc<[Json]>, new: Vec<Json>) -> bool {
    let before = std::mem::replace(list, new.into());
    before != *list
}

impl Inner {
    fn keep(&self, name: &str, change: impl FnOnce(&mut Slot) -> bool) -> bool {
        self.slots().get_mut(name).is_some_and(change)
    }

    /// A server that is connected answers.
    fn answers(&self, name: &str) {
        if self.keep(name, |slot| slot.become_state(State::Up)) {
            tracing::info!(server = name, "the server answers again");
            self.everything_changed();
        }
    }

    /// It does not. The connection stays: calls under way may still end well.
    fn silent(&self, name: &str, why: &str) {
        if self.keep(name, |slot| slot.become_down(why, true)) {
            tracing::warn!(server = name, error = why, "the server does not answer");
            self.everything_changed();
        }
    }
}

impl Slot {
    /// The server is connected.
    pub(super) fn arrive(&mut self, client: &Arc<Client>) {
        self.tools = client.tools();
        self.offers = Some(client.offers().into());
        self.client = Some(Arc::clone(client));
        self.become_state(State::Up);
    }
}

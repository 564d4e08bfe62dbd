//! What goes on beside the requests: the list of tools is refreshed when the server says so, and a modern server is asked
//! to say so.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ramen_mcp::code;
use ramen_mcp::names::method;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::backoff::{Backoff, BackoffPolicy, seed};
use crate::error::ClientError;
use crate::peer::{Ask, Changes};

/// A listen lasts as long as the connection.
const LISTEN: Duration = Duration::from_hours(24 * 365);

/// Starts what listens. It holds the client weakly and ends with the connection.
pub(super) fn start(inner: &Arc<Inner>, heard: watch::Receiver<Changes>) {
    let done = inner.peer.done().clone();
    tokio::spawn(refresh(Arc::downgrade(inner), heard, done.clone()));
    let (version, changes) = {
        let agreement = inner.agreement();
        (agreement.version, agreement.capabilities.any_changes())
    };
    if !version.is_modern() {
        inner.peer.listen(version);
    } else if changes {
        tokio::spawn(listen(Arc::downgrade(inner), done));
    }
}

/// Lists the tools again when they changed, at most once an interval however often that is said.
async fn refresh(
    client: Weak<Inner>,
    mut heard: watch::Receiver<Changes>,
    done: CancellationToken,
) {
    let mut seen = Changes::default();
    loop {
        tokio::select! {
            changed = heard.changed() => if changed.is_err() { return },
            () = done.cancelled() => return,
        }
        let Some(inner) = client.upgrade() else {
            return;
        };
        let interval = inner.limits.refresh;
        let now = *heard.borrow_and_update();
        let mut pause = interval;
        if now.tools != seen.tools {
            let refreshed = tokio::select! {
                refreshed = inner.refresh_tools() => refreshed,
                () = done.cancelled() => return,
            };
            match refreshed {
                Ok(changed) => {
                    seen.tools = now.tools;
                    if changed {
                        inner.updates.send_modify(|updates| updates.tools += 1);
                    }
                }
                // There is nothing left to list; whoever uses the connection hears of its end there.
                Err(ClientError::Gone { .. }) => return,
                Err(error) => {
                    tracing::warn!(
                        server = inner.name,
                        error = error.chain(),
                        "the changed tools cannot be listed"
                    );
                    pause = interval.saturating_mul(5);
                    // Whatever is heard meanwhile, it is tried again.
                    heard.mark_changed();
                }
            }
        }
        inner.updates.send_if_modified(|updates| {
            let prompts = now.prompts - std::mem::replace(&mut seen.prompts, now.prompts);
            let resources = now.resources - std::mem::replace(&mut seen.resources, now.resources);
            updates.prompts += prompts;
            updates.resources += resources;
            prompts + resources > 0
        });
        drop(inner);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = done.cancelled() => return,
        }
    }
}

/// Keeps one `subscriptions/listen` open. After a break changes may have been missed, so the lists count as changed.
async fn listen(client: Weak<Inner>, done: CancellationToken) {
    let mut backoff = Backoff::new(BackoffPolicy::default(), seed());
    let mut first = true;
    loop {
        let Some(inner) = client.upgrade() else {
            return;
        };
        let wanted = {
            let capabilities = &inner.agreement().capabilities;
            let told = |listed: Option<crate::handshake::Listed>| {
                listed.is_some_and(|listed| listed.list_changed)
            };
            serde_json::json!({ "notifications": {
                "toolsListChanged": told(capabilities.tools),
                "promptsListChanged": told(capabilities.prompts),
                "resourcesListChanged": told(capabilities.resources),
            }})
        };
        if !std::mem::take(&mut first) {
            inner.peer.assume_changed();
        }
        let started = tokio::time::Instant::now();
        let ask = Ask::new(method::LISTEN).params(wanted.to_string());
        let ended = tokio::select! {
            ended = inner.peer.ask(ask, LISTEN) => ended,
            () = done.cancelled() => return,
        };
        match ended {
            Err(ClientError::Gone { .. }) => return,
            Err(ClientError::Rpc(error)) if error.code == code::METHOD_NOT_FOUND => return,
            Ok(_) | Err(_) => {}
        }
        drop(inner);
        backoff.lived(started.elapsed());
        tokio::select! {
            () = tokio::time::sleep(backoff.next()) => {}
            () = done.cancelled() => return,
        }
    }
}

//! The keys of both doors, read again when their files change.

use std::sync::Arc;
use std::time::Duration;

pub use ramen_group::KeyFiles;
use ramen_group::KeyPrint;
use ramen_redact::KeySet;
use tokio::sync::Notify;

use super::Gate;

/// How often the files are looked at. A mounted Secret takes a minute to arrive anyway.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The keys that are valid now; what cannot be read is told and gives none.
pub(crate) fn read(files: &KeyFiles) -> KeySet {
    let (keys, faults) = files.read();
    for fault in faults {
        tracing::warn!(%fault, "cannot read keys; they are not valid");
    }
    keys
}

/// Keeps the keys of both doors as the files say; `look` makes it look at once.
pub async fn watch(gate: Arc<Gate>, mcp: KeyFiles, admin: KeyFiles, look: Arc<Notify>) {
    let mut seen = (KeyPrint::default(), KeyPrint::default());
    let mut first = true;
    loop {
        let now = (mcp.print(), admin.print());
        if first || now != seen {
            let keys = read(&mcp);
            if keys.is_empty() {
                tracing::warn!("no keys: every call is refused");
            } else {
                tracing::info!(keys = keys.len(), "keys read");
            }
            gate.mcp.set_keys(keys);
            gate.admin.set_keys(read(&admin));
            seen = now;
            first = false;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = look.notified() => first = true,
        }
    }
}

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

/// The key files of both doors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DoorFiles {
    /// Keys of callers.
    pub mcp: KeyFiles,
    /// Keys of gateways.
    pub gateway: KeyFiles,
    /// Keys of `ramen.v1.Admin`.
    pub admin: KeyFiles,
}

impl DoorFiles {
    fn print(&self) -> [KeyPrint; 3] {
        [self.mcp.print(), self.gateway.print(), self.admin.print()]
    }

    /// Gives both doors the keys that are valid now.
    pub(crate) fn open(&self, gate: &Gate) {
        let (keys, gateways) = (read(&self.mcp), read(&self.gateway));
        if keys.is_empty() && gateways.is_empty() {
            tracing::warn!("no keys: every call is refused");
        } else {
            tracing::info!(keys = keys.len(), gateways = gateways.len(), "keys read");
        }
        gate.mcp.set_keys(keys, gateways);
        gate.admin.set_keys(read(&self.admin), KeySet::empty());
    }
}

/// The keys that are valid now; what cannot be read is told and gives none.
fn read(files: &KeyFiles) -> KeySet {
    let (keys, faults) = files.read();
    for fault in faults {
        tracing::warn!(%fault, "cannot read keys; they are not valid");
    }
    keys
}

/// Keeps the keys of both doors as the files say; `look` makes it look at once.
pub async fn watch(gate: Arc<Gate>, files: DoorFiles, look: Arc<Notify>) {
    let mut seen = None;
    loop {
        let now = Some(files.print());
        if now != seen {
            files.open(&gate);
            seen = now;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = look.notified() => seen = None,
        }
    }
}

//! Keys in the state of `ramen up`: a file each, looked at every second by whoever runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tonic::Code;

use super::{Changed, Listed, listed};
use crate::connect::{nearby, read_key};
use crate::exit::Failure;
use crate::state::{GroupDir, StateDir, write_atomic};
use crate::upstream::Upstream;
use crate::{poke, up};

/// How long a change is waited for. It is there after a second, when the machine has time for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the worker is asked: it looks at its keys each second.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The keys of one group.
pub(super) struct Keys {
    state: StateDir,
    group: String,
    dir: GroupDir,
}

impl Keys {
    pub(super) fn find(state: Option<&Path>, group: Option<&str>) -> Result<Self, Failure> {
        let state = StateDir::locate(state)?;
        let (info, dir) = state.known(group)?;
        Ok(Self {
            state,
            group: info.full_name(),
            dir,
        })
    }

    /// The end of a change after which the key opens the group or does not: waits until everybody goes by that.
    fn changed(self, key: &str, opens: bool) -> Changed {
        let counts = self.counts(key, opens);
        Changed {
            group: self.group,
            counts,
        }
    }

    fn counts(&self, key: &str, opens: bool) -> bool {
        let Ok(running) = self.state.running(Some(&self.group)) else {
            // Whoever serves it later reads the keys first.
            return true;
        };
        let told = poke::ask(&self.state.socket(), "keys", &self.group);
        let target = nearby(&running.address, key, PATIENCE);
        let (Ok(answer), Ok(target), Ok(runtime)) = (told, target, crate::runtime()) else {
            return false;
        };
        answer.starts_with("ok") && runtime.block_on(judged(&Upstream::new(target), opens))
    }

    /// Keys of a Secret in the file of groups are changed there.
    fn ours(&self) -> Result<(), Failure> {
        if up::has_given_keys(&self.dir) {
            return Err(Failure::usage(format!(
                "the keys of {} come from its Secret: change that",
                self.group
            )));
        }
        Ok(())
    }

    pub(super) fn add(self, name: &str, key: &str) -> Result<Changed, Failure> {
        self.ours()?;
        let file = self.dir.keys().join(name);
        if file.exists() {
            return Err(Failure::usage(format!(
                "{} has a key {name} already: revoke it first",
                self.group
            )));
        }
        write_atomic(&file, format!("{key}\n").as_bytes())
            .map_err(|error| failed(&file, &error))?;
        Ok(self.changed(key, true))
    }

    pub(super) fn list(self) -> Result<Vec<Listed>, Failure> {
        let mut all = Vec::new();
        let folder = self.dir.keys();
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let text = fs::read_to_string(entry.path());
            all.extend(listed(
                &name,
                &text.map_err(|error| failed(&entry.path(), &error))?,
            ));
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    pub(super) fn revoke(self, name: &str) -> Result<Changed, Failure> {
        super::check_name(name)?;
        self.ours()?;
        let file = self.dir.keys().join(name);
        if !file.exists() {
            return Err(Failure::usage(format!("{} has no key {name}", self.group)));
        }
        let key = read_key(&file);
        up::end_key(&self.dir, name).map_err(|error| failed(&file, &error))?;
        // A file without a key opened nothing.
        let key = key.unwrap_or_default();
        Ok(self.changed(&key, false))
    }
}

/// Asks a worker with a key until it judges it so; whether it did.
async fn judged(worker: &Upstream, opens: bool) -> bool {
    let begun = Instant::now();
    loop {
        let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.as_slice();
        let opened = match worker.call(ping.into()).await {
            Ok(_) => Some(true),
            Err(status) => match status.code() {
                Code::Unauthenticated => Some(false),
                // It may be busy, or come back.
                Code::Unavailable | Code::DeadlineExceeded => None,
                _ => return false,
            },
        };
        if opened == Some(opens) {
            return true;
        }
        if begun.elapsed() > PATIENCE {
            return false;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn failed(file: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("{}: {error}", file.display()))
}

//! Keys in a cluster: the entries of the group's keys Secret. The operator and the gateway see a change at once.

use super::{Changed, Listed, listed};
use crate::exit::Failure;
use crate::status::{Cluster, ClusterArgs};

/// The entry that the gateway itself uses; no caller's.
const OF_THE_GATEWAY: &str = "gateway";

/// The keys of one group.
pub(super) struct Keys<'a> {
    group: &'a str,
    args: &'a ClusterArgs,
}

impl<'a> Keys<'a> {
    pub(super) fn new(group: &'a str, args: &'a ClusterArgs) -> Self {
        Self { group, args }
    }

    fn changed(&self) -> Changed {
        Changed {
            group: self.group.to_owned(),
            counts: true,
        }
    }

    /// Connects, and looks which Secret it is and what is in it.
    fn with<T>(
        &self,
        act: impl AsyncFnOnce(&Cluster, &str, Vec<(String, String)>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = crate::runtime()?;
        let done = runtime.block_on(async {
            let cluster = Cluster::connect(self.args, false).await?;
            let secret = cluster.keys_secret(self.group).await?;
            let mut entries = cluster.secret_texts(&secret).await?;
            entries.retain(|(name, _)| name != OF_THE_GATEWAY);
            act(&cluster, &secret, entries).await
        });
        runtime.shutdown_background();
        done
    }

    pub(super) fn add(self, name: &str, key: &str) -> Result<Changed, Failure> {
        if name == OF_THE_GATEWAY {
            return Err(Failure::usage("the entry `gateway` is the gateway's own"));
        }
        self.with(async |cluster, secret, entries| {
            if entries.iter().any(|(known, _)| known == name) {
                return Err(Failure::usage(format!(
                    "{} has a key {name} already: revoke it first",
                    self.group
                )));
            }
            cluster.set_entry(secret, name, Some(key)).await
        })?;
        Ok(self.changed())
    }

    pub(super) fn list(self) -> Result<Vec<Listed>, Failure> {
        self.with(async |_, _, entries| {
            let all = entries.iter();
            Ok(all.flat_map(|(name, text)| listed(name, text)).collect())
        })
    }

    pub(super) fn revoke(self, name: &str) -> Result<Changed, Failure> {
        self.with(async |cluster, secret, entries| {
            if !entries.iter().any(|(known, _)| known == name) {
                return Err(Failure::usage(format!("{} has no key {name}", self.group)));
            }
            cluster.set_entry(secret, name, None).await
        })?;
        Ok(self.changed())
    }
}

//! Groups from a file: who may call them and where their workers are. Read again when the file, or a
//! key file that it names, changes.

mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::access::{AccessRules, RuleText};
use ramen_group::{CidrSet, KeyFiles, KeyPrint};
use ramen_redact::Secret;
use serde::Deserialize;

use crate::groups::{GroupName, GroupSpec, Groups, WorkerAt, is_label};
use crate::metrics::Metrics;
use crate::pool::WorkerTls;
use crate::upstreams::UpstreamSpec;

/// How often the file of groups is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Every so many looks the key files are, too: there may be thousands.
const KEYS_EVERY: u32 = 10;
/// Largest file of groups.
const MAX_FILE: u64 = 4 * 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Listed {
    groups: Vec<ListedGroup>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListedGroup {
    #[serde(default = "default_namespace")]
    namespace: String,
    name: String,
    /// Folder of callers' keys.
    keys_dir: Option<PathBuf>,
    /// File of callers' keys.
    keys_file: Option<PathBuf>,
    /// File with the gateway's own key at the workers.
    worker_key_file: PathBuf,
    /// Where callers may be; loopback when it is absent.
    allowed_cidrs: Option<Vec<String>>,
    /// Who may use what, as in a McpGroup.
    access: Option<ListedAccess>,
    /// `host:port` of each worker.
    #[serde(default)]
    workers: Vec<String>,
    /// The same of workers in zones, by the zone's name.
    #[serde(default)]
    zones: BTreeMap<String, Vec<String>>,
    /// Who signs for the workers' certificates; absent: they speak no TLS.
    workers_ca_file: Option<PathBuf>,
    /// The name in them; absent: the host of each address.
    workers_name: Option<String>,
    /// Other MCP servers.
    #[serde(default)]
    upstreams: Vec<upstream::Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListedAccess {
    rules: Vec<RuleText>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// Why a file of groups cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no list of groups.
    #[error("{} is no list of groups: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// What was read: the groups, and the files that they came from.
#[derive(Debug)]
pub struct Reading {
    /// The groups.
    pub specs: Vec<GroupSpec>,
    files: Vec<KeyFiles>,
}

/// Reads the file and the keys that it names. Paths in it are relative to its folder.
pub fn read(path: &Path) -> Result<Reading, ListError> {
    let failed = |source| ListError::Read {
        path: path.to_owned(),
        source,
    };
    let form = |why: String| ListError::Form {
        path: path.to_owned(),
        why,
    };
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_FILE {
        return Err(form("it is larger than 4 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let listed: Listed = serde_saphyr::from_str(&text).map_err(|error| form(error.to_string()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut reading = Reading {
        specs: Vec::new(),
        files: vec![KeyFiles {
            dir: None,
            file: Some(path.to_owned()),
        }],
    };
    for group in listed.groups {
        let name = format!("{}/{}", group.namespace, group.name);
        let spec = reading
            .group(folder, group)
            .map_err(|why| form(format!("{name}: {why}")))?;
        if reading.specs.iter().any(|known| known.name == spec.name) {
            return Err(form(format!("{name} is there twice")));
        }
        reading.specs.push(spec);
    }
    Ok(reading)
}

impl Reading {
    fn group(&mut self, folder: &Path, group: ListedGroup) -> Result<GroupSpec, String> {
        if !is_label(&group.namespace) || !is_label(&group.name) {
            return Err("names are DNS labels: a-z, 0-9 and -, at most 63".to_owned());
        }
        let ranges = group
            .allowed_cidrs
            .unwrap_or_else(|| vec!["127.0.0.0/8".into(), "::1/128".into()]);
        let ranges = CidrSet::parse_list(&ranges.join(",")).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        })?;
        let mut upstreams = Vec::new();
        for listed in group.upstreams {
            let name = listed.name().to_owned();
            let (spec, files) = listed
                .read(folder)
                .map_err(|why| format!("the upstream `{name}`: {why}"))?;
            if upstreams
                .iter()
                .any(|known: &UpstreamSpec| known.name == spec.name)
            {
                return Err(format!("the upstream `{name}` is there twice"));
            }
            upstreams.push(spec);
            self.files.extend(files);
        }
        if group.workers_name.is_some() && group.workers_ca_file.is_none() {
            return Err("workersName is for TLS: workersCaFile is missing".to_owned());
        }
        let tls = group.workers_ca_file.map(|file| {
            Arc::new(WorkerTls {
                ca: folder.join(file),
                name: group.workers_name,
            })
        });
        let at = |address: String, zone: Option<&String>| WorkerAt {
            address,
            zone: zone.cloned(),
            tls: tls.clone(),
        };
        let mut workers: Vec<_> = group.workers.into_iter().map(|one| at(one, None)).collect();
        for (zone, addresses) in group.zones {
            workers.extend(addresses.into_iter().map(|one| at(one, Some(&zone))));
        }
        for WorkerAt { address, .. } in &workers {
            let port = address
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() || http::uri::Authority::try_from(address.as_str()).is_err() {
                return Err(format!("worker `{address}` is no host:port"));
            }
        }
        let access = group.access.map(rules).transpose()?;
        let own = KeyFiles {
            dir: None,
            file: Some(folder.join(group.worker_key_file)),
        };
        let worker_key = first_key(&own)?;
        let callers = KeyFiles {
            dir: group.keys_dir.map(|dir| folder.join(dir)),
            file: group.keys_file.map(|file| folder.join(file)),
        };
        let (keys, faults) = callers.read();
        for fault in faults {
            tracing::warn!(group = group.name, %fault, "cannot read keys; they are not valid");
        }
        if keys.is_empty() {
            tracing::warn!(group = group.name, "no keys: every call is refused");
        }
        self.files.extend([own, callers]);
        Ok(GroupSpec {
            name: GroupName {
                namespace: group.namespace,
                name: group.name,
            },
            keys,
            access,
            ranges,
            worker_key,
            workers,
            upstreams,
        })
    }

    fn prints(&self) -> Vec<KeyPrint> {
        self.files.iter().map(KeyFiles::print).collect()
    }
}

fn rules(access: ListedAccess) -> Result<Arc<AccessRules>, String> {
    AccessRules::new(access.rules)
        .map(Arc::new)
        .map_err(|faults| {
            let faults = faults.iter();
            let told: Vec<_> = faults
                .map(|fault| format!("access.rules{}: {}", fault.field, fault.message))
                .collect();
            told.join("; ")
        })
}

fn first_key(files: &KeyFiles) -> Result<Secret, String> {
    let path = files.file.clone().unwrap_or_default();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let key = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    key.map(Secret::from)
        .ok_or_else(|| format!("{} holds no key", path.display()))
}

/// Keeps the groups as the file says, for ever. A file that cannot be used changes nothing, and is told by the metrics.
pub async fn watch(path: PathBuf, groups: Groups, mut last: Reading, metrics: Arc<Metrics>) {
    let mut seen = last.prints();
    metrics.unusable("groups", false);
    let mut looks = 0_u32;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        looks = looks.wrapping_add(1);
        // The file itself comes first.
        let same = last.files.first().map(KeyFiles::print) == seen.first().cloned();
        if same && !looks.is_multiple_of(KEYS_EVERY) {
            continue;
        }
        let now = last.prints();
        if now == seen {
            continue;
        }
        let read = read(&path);
        metrics.unusable("groups", read.is_err());
        match read {
            Ok(reading) => {
                groups.replace(&reading.specs);
                tracing::info!(groups = reading.specs.len(), "groups read");
                seen = reading.prints();
                last = reading;
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the groups stay as they are"
                );
                seen = now;
            }
        }
    }
}

#[cfg(test)]
mod tests;

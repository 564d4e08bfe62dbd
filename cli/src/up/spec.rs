//! From a file of groups, or a folder, to what each group's task needs.

mod documents;
mod group;
mod upstreams;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ramen_crds::validate::{SecretName, UrlPolicy, validate_with};
use ramen_crds::{McpGroup, ValidatedGroup, secret_variables};
use ramen_source::git::{Credentials, GitUrl, Remote, Wanted};

use self::documents::{Documents, Secret};
pub(super) use self::group::GroupSpec;
use super::group::Key;
use super::source::Source;

/// The groups to run.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) groups: Vec<GroupSpec>,
    /// Groups that cannot run as they are written, and why. One that runs goes on as it was.
    pub(super) faulty: Vec<(Key, Vec<String>)>,
    /// What people should read once.
    pub(super) remarks: Vec<String>,
}

impl Plan {
    /// One group: a folder of this machine.
    pub(super) fn of_folder(dir: &Path) -> Result<Self, String> {
        let dir = dir
            .canonicalize()
            .map_err(|error| format!("{}: {error}", dir.display()))?;
        if !dir.is_dir() {
            return Err(format!("{} is no folder", dir.display()));
        }
        let group = GroupSpec {
            key: ("default".to_owned(), group_of_folder(&dir)),
            source_fingerprint: dir.display().to_string(),
            source: Source::Folder(dir),
            deploy_fingerprint: String::new(),
            interval: Duration::MAX,
            suspended: false,
            history: 1,
            python: None,
            allow_sdist: false,
            deploy_timeout_secs: None,
            keys: None,
            access: None,
            worker_env: Vec::new(),
            deploy_env: Vec::new(),
            listen: None,
            secrets: secrets_of_environment(),
            upstreams: Vec::new(),
        };
        Ok(Self {
            groups: vec![group],
            ..Self::default()
        })
    }

    /// The groups of a file. A group with faults does not stand in the way of the others.
    pub(super) fn of_file(file: &Path) -> Result<Self, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
        let documents = Documents::parse(&text).map_err(|error| named(&error))?;
        let mut plan = Self {
            remarks: documents
                .remarks
                .iter()
                .map(|remark| named(remark))
                .collect(),
            ..Self::default()
        };
        if documents.groups.is_empty() {
            return Err(named(&"no McpGroup in it"));
        }
        for group in &documents.groups {
            let key = documents::key_of(&group.metadata);
            let known = plan.groups.iter().map(|spec| &spec.key);
            if known
                .chain(plan.faulty.iter().map(|(key, _)| key))
                .any(|known| *known == key)
            {
                return Err(named(&format!(
                    "the group {}/{} stands in it twice",
                    key.0, key.1
                )));
            }
            match build(group, &key, &documents.secrets, &mut plan.remarks) {
                Ok(spec) => plan.groups.push(spec),
                Err(faults) => plan.faulty.push((key, faults)),
            }
        }
        if plan.groups.is_empty() {
            let faults = plan.faulty.iter().flat_map(|((_, name), faults)| {
                faults
                    .iter()
                    .map(move |fault| format!("\n  {name}: {fault}"))
            });
            return Err(named(&format!(
                "no group in it can run{}",
                faults.collect::<String>()
            )));
        }
        Ok(plan)
    }

    /// The same plan with a fixed address.
    pub(super) fn listening(mut self, listen: Option<SocketAddr>) -> Result<Self, String> {
        match (listen, self.groups.as_mut_slice()) {
            (None, _) => {}
            (Some(listen), [only]) => only.listen = Some(listen),
            (Some(_), _) => return Err("--listen needs a single group".to_owned()),
        }
        Ok(self)
    }
}

type Secrets = BTreeMap<Key, Secret>;

/// One group of a file; all of its faults.
fn build(
    group: &McpGroup,
    key: &Key,
    secrets: &Secrets,
    remarks: &mut Vec<String>,
) -> Result<GroupSpec, Vec<String>> {
    let valid = validate_with(group, UrlPolicy::Local)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let left_out = valid.worker.left_out.iter();
    remarks.extend(left_out.map(|one| format!("{}: {one}; it is left out", key.1)));
    let mut faults = Vec::new();
    let mut find = |field: &str, name: &SecretName| {
        let found = secrets.get(&(key.0.clone(), name.as_str().to_owned()));
        if found.is_none() {
            faults.push(format!(
                "{field}: the Secret {} is not in the file",
                name.as_str()
            ));
        }
        found
    };
    let keys = valid
        .keys
        .as_ref()
        .and_then(|name| find("spec.keys.secretRef", name));
    let mut login = Secret::new();
    let names = [
        ("spec.source.secretRef", &valid.source.secret),
        ("spec.source.caSecretRef", &valid.source.ca_secret),
    ];
    for (field, name) in names {
        let entries = name.as_ref().and_then(|name| find(field, name));
        login.extend(
            entries
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    let given: Vec<(&SecretName, &Secret)> = valid
        .secrets
        .iter()
        .filter_map(|name| Some((name, find("spec.secrets", name)?)))
        .collect();
    let upstreams = upstreams::upstreams(&valid.upstreams, key, secrets);
    let secrets = variables(valid.name.as_str(), &given, remarks);
    let source = source(&valid, &login)
        .map_err(|fault| faults.push(fault))
        .ok();
    let (Some(source), true) = (source, faults.is_empty()) else {
        return Err(faults);
    };
    Ok(GroupSpec {
        key: key.clone(),
        source,
        source_fingerprint: valid.source_fingerprint(),
        deploy_fingerprint: valid.deploy_fingerprint(),
        interval: valid.source.interval,
        suspended: valid.source.suspend,
        history: valid.history,
        python: valid
            .worker
            .python
            .as_ref()
            .map(|version| version.as_str().to_owned()),
        allow_sdist: valid.worker.allow_sdist,
        deploy_timeout_secs: Some(valid.worker.deploy_timeout.as_secs()),
        keys: keys.cloned(),
        access: valid.access.clone().map(Arc::new),
        worker_env: worker_env(&valid),
        deploy_env: code_env(&valid),
        listen: None,
        secrets,
        upstreams,
    })
}

fn source(valid: &ValidatedGroup, login: &Secret) -> Result<Source, String> {
    use ramen_crds::validate::RefSpec;
    let url = GitUrl::parse(valid.source.url.as_str())
        .map_err(|error| format!("spec.source.url: {error}"))?;
    let wanted = match &valid.source.reference {
        RefSpec::Default => Wanted::from_fields(None, None, None, None, None),
        RefSpec::Branch(name) => Wanted::from_fields(Some(name), None, None, None, None),
        RefSpec::Tag(name) => Wanted::from_fields(None, Some(name), None, None, None),
        RefSpec::Semver(range) => {
            Wanted::from_fields(None, None, Some(&range.to_string()), None, None)
        }
        RefSpec::Commit(id) => Wanted::from_fields(None, None, None, None, Some(id)),
        RefSpec::Name(name) => Wanted::parse(name),
    };
    let wanted = wanted.map_err(|error| format!("spec.source.ref: {error}"))?;
    let credentials = Credentials::from_files(login)
        .map_err(|error| format!("spec.source.secretRef: {error}"))?;
    let mut remote = Remote::new(url);
    remote.credentials = Arc::new(credentials);
    remote.limits.timeout = valid.source.timeout;
    Ok(Source::Git {
        remote: Box::new(remote),
        wanted,
        path: valid.source.path.as_str().to_owned(),
    })
}

/// The variables of the group, and which of them the code gets. That list is always there: one of the person's own would
/// hand over what the group does not name.
fn code_env(valid: &ValidatedGroup) -> Vec<(String, OsString)> {
    let worker = &valid.worker;
    let named = (
        "RAMEN_HOST_ENV".to_owned(),
        OsString::from(worker.code_variables()),
    );
    let set = worker.env.iter();
    let set = set.map(|(name, value)| (name.clone(), OsString::from(value)));
    set.chain([named]).collect()
}

fn worker_env(valid: &ValidatedGroup) -> Vec<(String, OsString)> {
    let worker = &valid.worker;
    let mut env = code_env(valid);
    let mut set = |name: &str, value: String| env.push((name.to_owned(), value.into()));
    set("RAMEN_ALLOWED_CIDRS", valid.allowed.to_string());
    set("RAMEN_TRUST_PROXY", valid.trusted_proxy_hops.to_string());
    set("RAMEN_HOST_THREADS", worker.threads.to_string());
    set("RAMEN_MAX_INFLIGHT", worker.max_inflight.to_string());
    set(
        "RAMEN_CALL_TIMEOUT_SECS",
        worker.call_timeout.as_secs().to_string(),
    );
    if let Some(hosts) = worker.hosts {
        set("RAMEN_HOSTS", hosts.to_string());
    }
    env
}

/// `RAMEN_SECRET_*` for the entries of the group's Secrets.
fn variables(
    group: &str,
    given: &[(&SecretName, &Secret)],
    remarks: &mut Vec<String>,
) -> Vec<(String, OsString)> {
    let keys = given
        .iter()
        .flat_map(|(name, secret)| secret.keys().map(|key| (name.as_str(), key.as_str())));
    let (variables, faults) = secret_variables(group, keys);
    remarks.extend(faults.iter().map(|fault| format!("{group}: {fault}")));
    let mut env = Vec::new();
    for (variable, (name, key)) in variables {
        let secret = given.iter().find(|(known, _)| known.as_str() == name);
        let Some(value) = secret.and_then(|(_, secret)| secret.get(&key)) else {
            continue;
        };
        if value.contains(&0) {
            remarks.push(format!(
                "{group}: secrets[{name}].{key}: a value with a NUL byte is left out"
            ));
            continue;
        }
        env.push((variable, OsString::from_vec(value.clone())));
    }
    env
}

/// The name of the group that a folder (or its `mcp` folder) is.
pub(crate) fn group_of_folder(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let named = if dir.ends_with("mcp") {
        dir.parent().unwrap_or(&dir)
    } else {
        &dir
    };
    group_name(&named.file_name().unwrap_or_default().to_string_lossy())
}

/// The secrets of the person who tries a folder.
fn secrets_of_environment() -> Vec<(String, OsString)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("RAMEN_SECRET_"))
        .collect()
}

/// A folder's name as the name of a group: lower case letters, digits and `-`.
fn group_name(folder: &str) -> String {
    let mapped: String = folder
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(50)
        .collect();
    let name = mapped.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("group-{name}")
    }
}

#[cfg(test)]
mod tests;

//! The state directory of `ramen up`: where each group's worker listens and where its key is.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ramen_gateway::GroupName;
use ramen_gateway::operations::path_beside;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::exit::Failure;
use crate::names;

/// The directory; nothing in it is made before it is needed.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    root: PathBuf,
}

/// The directory of one group.
#[derive(Debug, Clone)]
pub(crate) struct GroupDir {
    root: PathBuf,
}

/// What `ramen up` leaves for other commands about a group.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) key_file: PathBuf,
}

/// Where a worker listens; the worker writes it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Address {
    pub(crate) grpc: String,
    pub(crate) pid: i32,
}

/// A group that is being served.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) address: String,
    /// Where MCP clients connect over HTTP.
    pub(crate) url: Option<String>,
    pub(crate) key_file: PathBuf,
}

impl GroupInfo {
    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Where it is over HTTP.
    fn path(&self) -> Option<String> {
        path_beside(&GroupName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        })
    }

    /// Whether it is the wanted one: any, by name, or by namespace and name.
    fn is(&self, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| wanted == self.name || wanted == self.full_name())
    }
}

impl StateDir {
    /// The directory named by the flag, `RAMEN_STATE_DIR`, or the user's state directory.
    pub(crate) fn locate(flag: Option<&Path>) -> Result<Self, Failure> {
        if let Some(dir) = flag {
            let root = std::path::absolute(dir).map_err(|error| {
                Failure::usage(format!("bad state directory {}: {error}", dir.display()))
            })?;
            return Ok(Self { root });
        }
        let base = match std::env::var_os(names::XDG_STATE_HOME).map(PathBuf::from) {
            Some(base) if base.is_absolute() => base,
            _ => std::env::home_dir()
                .filter(|home| home.is_absolute())
                .ok_or_else(|| Failure::usage("no home directory: name a --state-dir"))?
                .join(".local/state"),
        };
        Ok(Self {
            root: base.join("ramen"),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the directory with what all groups share in it, for its owner alone; what is there with rights of others
    /// loses them. Whoever lets another program write into it makes it first.
    pub(crate) fn make(&self) -> std::io::Result<()> {
        for dir in [
            self.root.clone(),
            self.store(),
            self.cache(),
            self.scratch(),
        ] {
            make_dir(&dir)?;
            if let Err(error) = close(&dir) {
                tracing::warn!(dir = %dir.display(), error = %error, "others can look into the state directory");
            }
        }
        Ok(())
    }

    /// Layers, shared by all groups.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Unpacked layers, shared by all groups.
    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// What fetches keep while they run.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// The socket that `ramen poke` speaks to.
    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("control.sock")
    }

    /// Where the gateway listens, kept so that clients find it again.
    pub(crate) fn gateway(&self) -> PathBuf {
        self.root.join("gateway-address")
    }

    /// The key of the platform's operations.
    pub(crate) fn operator_key(&self) -> PathBuf {
        self.root.join("operator-key")
    }

    /// Held while a `ramen up` runs.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The directory of one group.
    pub(crate) fn group(&self, namespace: &str, name: &str) -> GroupDir {
        GroupDir {
            root: self.root.join("groups").join(format!("{namespace}.{name}")),
        }
    }

    /// The group of this name (or `namespace/name`), whether it runs or not; without a name the only one.
    pub(crate) fn known(&self, wanted: Option<&str>) -> Result<(GroupInfo, GroupDir), Failure> {
        let entries = fs::read_dir(self.root.join("groups")).into_iter().flatten();
        let dirs = entries
            .flatten()
            .map(|entry| GroupDir { root: entry.path() });
        let known = dirs.filter_map(|dir| Some((read_json::<GroupInfo>(&dir.info())?, dir)));
        let mut found: Vec<_> = known.filter(|(info, _)| info.is(wanted)).collect();
        found.sort_by_key(|(info, _)| info.full_name());
        match (found.pop(), found.as_slice()) {
            (Some(only), []) => Ok(only),
            (None, _) => Err(Failure::usage(format!(
                "`ramen up` has not served {} from {}",
                wanted.map_or_else(|| "a group".to_owned(), |name| format!("the group {name}")),
                self.root.display()
            ))),
            (Some(last), others) => {
                let others = others.iter().map(|(info, _)| info.full_name());
                let names: Vec<_> = others.chain([last.0.full_name()]).collect();
                Err(Failure::usage(format!(
                    "there are several groups, choose one with --group: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// The running group of this name (or `namespace/name`); without a name the only one.
    pub(crate) fn running(&self, wanted: Option<&str>) -> Result<Running, Failure> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.root.join("groups"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let dir = GroupDir { root: entry.path() };
            let (Some(info), Some(address)) = (
                read_json::<GroupInfo>(&dir.info()),
                read_json::<Address>(&dir.address()),
            ) else {
                continue;
            };
            if alive(address.pid) {
                found.push((info, address));
            }
        }
        let all: Vec<_> = found.iter().map(|(info, _)| info.full_name()).collect();
        found.retain(|(info, _)| info.is(wanted));
        found.sort_by(|a, b| (&a.0.namespace, &a.0.name).cmp(&(&b.0.namespace, &b.0.name)));
        match found.as_slice() {
            [(info, address)] => Ok(Running {
                name: info.name.clone(),
                address: address.grpc.clone(),
                url: fs::read_to_string(self.gateway())
                    .ok()
                    .and_then(|at| Some(format!("http://{}{}", at.trim(), info.path()?))),
                key_file: info.key_file.clone(),
            }),
            [] if !all.is_empty() => Err(Failure::transport(format!(
                "the running `ramen up` serves no group {}; there are: {}",
                wanted.unwrap_or_default(),
                sorted(all).join(", ")
            ))),
            [] => Err(Failure::transport(format!(
                "no running `ramen up` serves {}: start one (`ramen up DIR`), or name a worker with --target",
                wanted.map_or_else(|| "a group".to_owned(), |name| format!("the group {name}"))
            ))),
            several => {
                let names: Vec<_> = several.iter().map(|(info, _)| info.full_name()).collect();
                Err(Failure::usage(format!(
                    "several groups are running, choose one with --group: {}",
                    names.join(", ")
                )))
            }
        }
    }
}

impl GroupDir {
    pub(crate) fn info(&self) -> PathBuf {
        self.root.join("group.json")
    }

    pub(crate) fn address(&self) -> PathBuf {
        self.root.join("address.json")
    }

    /// The rollout memory.
    pub(crate) fn memory(&self) -> PathBuf {
        self.root.join("memory.json")
    }

    /// What the worker should serve; the worker watches it.
    pub(crate) fn desired(&self) -> PathBuf {
        self.root.join("desired.json")
    }

    /// The keys that open the group.
    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// There when those are the keys of a Secret, and no others are made beside them.
    pub(crate) fn given_keys(&self) -> PathBuf {
        self.root.join("given-keys")
    }

    pub(crate) fn admin_key(&self) -> PathBuf {
        self.root.join("admin-key")
    }

    /// Reports of deploys, one folder for each.
    pub(crate) fn deploys(&self) -> PathBuf {
        self.root.join("deploys")
    }

    /// The port of the worker, kept so that clients find it again.
    pub(crate) fn port(&self) -> PathBuf {
        self.root.join("port")
    }

    /// What the worker logged.
    pub(crate) fn worker_log(&self) -> PathBuf {
        self.root.join("worker.log")
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

/// Whether a process of this id exists.
pub(crate) fn alive(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Reads a JSON file; nothing when it is missing or broken.
pub(crate) fn read_json<T: DeserializeOwned>(file: &Path) -> Option<T> {
    let bytes = fs::read(file).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::warn!(file = %file.display(), error = %error, "ignoring a broken state file");
            None
        }
    }
}

/// Writes a file by rename, readable by its owner only: a reader sees the old bytes or the new ones, also after a crash.
pub(crate) fn write_atomic(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or_else(|| Path::new("."));
    make_dir(dir)?;
    let mut temp = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
    temp.write_all(bytes)?;
    temp.as_file().sync_all()?;
    temp.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Makes a directory that only its owner can look into, with its parents.
pub(crate) fn make_dir(dir: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Takes the rights of others from a directory. One that everybody writes into, like `/tmp`, is not ours to close.
fn close(dir: &Path) -> std::io::Result<()> {
    let mode = fs::metadata(dir)?.permissions().mode();
    if mode & 0o077 == 0 || mode & 0o1000 != 0 {
        return Ok(());
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(mode & 0o7700))
}

/// Opens a file for appending, readable by its owner only.
pub(crate) fn append(file: &Path) -> std::io::Result<fs::File> {
    if let Some(dir) = file.parent() {
        make_dir(dir)?;
    }
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_directory_is_its_owners_alone_also_when_it_was_made_otherwise() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(&temp.path().join("new"))).unwrap();
        state.make().unwrap();
        for dir in [
            state.root().to_owned(),
            state.store(),
            state.cache(),
            state.scratch(),
        ] {
            assert_eq!(mode(&dir), 0o700, "{}", dir.display());
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        state.make().unwrap();
        assert_eq!((mode(state.root()), mode(&state.store())), (0o700, 0o700));
        // Such a one is everybody's: what we make in it is still ours alone.
        fs::set_permissions(state.root(), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::set_permissions(state.cache(), fs::Permissions::from_mode(0o755)).unwrap();
        state.make().unwrap();
        assert_eq!((mode(state.root()), mode(&state.cache())), (0o1777, 0o700));
    }

    fn serve(state: &StateDir, namespace: &str, name: &str, pid: u32) {
        let dir = state.group(namespace, name);
        let info = GroupInfo {
            namespace: namespace.into(),
            name: name.into(),
            key_file: "k".into(),
        };
        write_atomic(&dir.info(), &serde_json::to_vec(&info).unwrap()).unwrap();
        let address = format!(r#"{{"grpc":"127.0.0.1:1","metrics":"off","pid":{pid}}}"#);
        write_atomic(&dir.address(), address.as_bytes()).unwrap();
    }

    #[test]
    fn a_group_whose_path_the_operations_have_has_no_address_over_http() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(temp.path())).unwrap();
        write_atomic(&state.gateway(), b"127.0.0.1:8080").unwrap();
        serve(&state, "api", "v1", std::process::id());
        assert_eq!(state.running(None).unwrap().url, None);
    }

    #[test]
    fn the_only_running_group_is_the_default_and_several_need_a_name() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(temp.path())).unwrap();
        assert!(
            state
                .running(None)
                .unwrap_err()
                .to_string()
                .contains("no running `ramen up`")
        );
        serve(&state, "default", "a", std::process::id());
        // A worker that died left its address behind.
        serve(&state, "default", "dead", 0x3fff_fff0);
        let running = state.running(None).unwrap();
        assert_eq!(
            (running.address.as_str(), running.url),
            ("127.0.0.1:1", None)
        );
        write_atomic(&state.gateway(), b"127.0.0.1:8080").unwrap();
        assert_eq!(
            state.running(None).unwrap().url.unwrap(),
            "http://127.0.0.1:8080/default/a/mcp"
        );
        serve(&state, "team", "b", std::process::id());
        assert!(
            state
                .running(None)
                .unwrap_err()
                .to_string()
                .contains("default/a, team/b")
        );
        assert!(state.running(Some("team/b")).is_ok());
        let dead = state.running(Some("dead")).unwrap_err();
        assert_eq!(
            (dead.code(), dead.to_string().as_str()),
            (
                6,
                "the running `ramen up` serves no group dead; there are: default/a, team/b"
            )
        );
    }

    #[test]
    fn files_are_private_and_replaced_whole() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("a/b.json");
        write_atomic(&file, b"1").unwrap();
        write_atomic(&file, b"2").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"2");
        assert_eq!(mode(&file), 0o600);
        assert_eq!(fs::read_dir(temp.path().join("a")).unwrap().count(), 1);
    }
}

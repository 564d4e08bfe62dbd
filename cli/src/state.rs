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
    /// It has upstreams or access rules, which the gateway knows and its worker does not.
    #[serde(default)]
    pub(crate) through_gateway: bool,
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
    pub(crate) info: GroupInfo,
    /// Where its worker listens.
    pub(crate) address: String,
    /// Where MCP clients connect over HTTP.
    pub(crate) url: Option<String>,
}

/// A group that was served from here.
struct Found {
    info: GroupInfo,
    dir: GroupDir,
    /// Where its worker listens, when one does.
    address: Option<Address>,
}

impl GroupInfo {
    pub(crate) fn full_name(&self) -> String {
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

    /// Every group that was served from here, by namespace and name.
    fn groups(&self) -> Vec<Found> {
        let entries = fs::read_dir(self.root.join("groups")).into_iter().flatten();
        let dirs = entries
            .flatten()
            .map(|entry| GroupDir { root: entry.path() });
        let found = dirs.filter_map(|dir| {
            Some(Found {
                info: read_json(&dir.info())?,
                address: read_json(&dir.address()).filter(|address: &Address| alive(address.pid)),
                dir,
            })
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|group| group.info.full_name());
        found
    }

    /// The group of this name (or `namespace/name`): of those that run as in [`Self::running`], else of all.
    pub(crate) fn known(&self, wanted: Option<&str>) -> Result<(GroupInfo, GroupDir), Failure> {
        let mut found = self.groups();
        found.retain(|group| group.info.is(wanted));
        if found.iter().any(|group| group.address.is_some()) {
            found.retain(|group| group.address.is_some());
        }
        match only(found)? {
            Some(group) => Ok((group.info, group.dir)),
            None => Err(Failure::usage(format!(
                "`ramen up` has not served {} from {}",
                called(wanted),
                self.root.display()
            ))),
        }
    }

    /// The running group of this name (or `namespace/name`); without a name the only one.
    pub(crate) fn running(&self, wanted: Option<&str>) -> Result<Running, Failure> {
        let mut found = self.groups();
        found.retain(|group| group.address.is_some());
        let all: Vec<_> = found.iter().map(|group| group.info.full_name()).collect();
        found.retain(|group| group.info.is(wanted));
        if let Some(Found {
            info,
            address: Some(address),
            ..
        }) = only(found)?
        {
            let gateway = fs::read_to_string(self.gateway()).ok();
            let url = gateway.and_then(|at| Some(format!("http://{}{}", at.trim(), info.path()?)));
            return Ok(Running {
                info,
                address: address.grpc,
                url,
            });
        }
        Err(Failure::transport(if all.is_empty() {
            format!(
                "no running `ramen up` serves {}: start one (`ramen up DIR`), or name a worker with --target",
                called(wanted)
            )
        } else {
            format!(
                "the running `ramen up` serves no group {}; there are: {}",
                wanted.unwrap_or_default(),
                all.join(", ")
            )
        }))
    }
}

/// The one that is left; of several nobody can choose but the caller.
fn only(mut found: Vec<Found>) -> Result<Option<Found>, Failure> {
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|group| group.info.full_name()).collect();
        return Err(Failure::usage(format!(
            "there are several groups, choose one with --group: {}",
            names.join(", ")
        )));
    }
    Ok(found.pop())
}

/// A group in a sentence.
fn called(wanted: Option<&str>) -> String {
    wanted.map_or_else(|| "a group".to_owned(), |name| format!("the group {name}"))
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
    let closed = mode & 0o7700;
    if mode & 0o7777 == closed || mode & 0o1000 != 0 {
        return Ok(());
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(closed))
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
            through_gateway: false,
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
        // The keys are those of the groups that run, by the same rule; of one that does not, when it is named.
        let known = |wanted| state.known(wanted).map(|(info, _)| info.full_name());
        let several = known(None).unwrap_err().to_string();
        assert!(several.ends_with("--group: default/a, team/b"), "{several}");
        assert_eq!(known(Some("dead")).unwrap(), "default/dead");
        fs::remove_file(state.group("team", "b").address()).unwrap();
        assert_eq!(known(None).unwrap(), "default/a");
        serve(&state, "team", "b", std::process::id());
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

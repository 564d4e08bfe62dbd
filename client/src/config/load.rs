//! The files, merged.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{ServerConfig, entry, jsonc};

/// Largest file that is read.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Most servers of one file.
const MAX_SERVERS: usize = 1000;

/// Where the lists are and where variables come from.
pub struct Sources<'a> {
    /// The list of the person or the machine.
    pub global: Option<PathBuf>,
    /// The list of the project, which wins.
    pub project: Option<PathBuf>,
    /// What `${workspaceFolder}` stands for.
    pub workspace: Option<PathBuf>,
    /// A variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// What the files say.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The servers by name. Those that are not `enabled` are here, too.
    pub servers: BTreeMap<String, ServerConfig>,
    /// What could not be used. The servers beside are not affected.
    pub faults: Vec<Fault>,
}

/// Something that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The server, unless it is the whole file.
    pub server: Option<String>,
    /// What is wrong; never a value.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match &self.server {
            Some(server) => write!(f, "{file}: server {server:?}: {}", self.why),
            None => write!(f, "{file}: {}", self.why),
        }
    }
}

/// Merges the global list with the project's own. An entry of the project wins over the global one of the same name, which
/// lets a repository pin another version of a server, or switch it off with `"enabled": false`; so it does when it is
/// broken, since the global one is not what the project wants.
///
/// A file that is not there is an empty list.
pub fn load(sources: &Sources<'_>) -> Loaded {
    let mut loaded = Loaded::default();
    for file in [&sources.global, &sources.project].into_iter().flatten() {
        let entries = match read(file) {
            Ok(entries) => entries,
            Err(why) => {
                loaded.fault(file, None, why);
                continue;
            }
        };
        let lookup = |name: &str| match (name, &sources.workspace) {
            ("workspaceFolder", Some(folder)) => Some(folder.display().to_string()),
            _ => (sources.env)(name),
        };
        for (name, value) in entries {
            // Whatever becomes of it, it stands in for the global one.
            loaded.servers.remove(&name);
            match judge(&name, &value, &lookup) {
                Ok(config) => {
                    loaded.servers.insert(name, config);
                }
                Err(why) => loaded.fault(file, Some(name), why),
            }
        }
    }
    loaded
}

impl Loaded {
    fn fault(&mut self, file: &Path, server: Option<String>, why: String) {
        self.faults.push(Fault {
            file: file.to_owned(),
            server,
            why,
        });
    }
}

fn judge(
    name: &str,
    value: &Value,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerConfig, String> {
    if name.is_empty() || name.chars().count() > 128 || name.chars().any(char::is_control) {
        return Err("a name has 1 to 128 characters and no control characters".to_owned());
    }
    match entry::from_json(value, lookup) {
        // What is switched off may be unfinished.
        Err(_) if entry::enabled(value) == Ok(false) => {
            let mut off = ServerConfig::stdio(name, Vec::<String>::new());
            off.enabled = false;
            Ok(off)
        }
        config => config,
    }
}

/// The entries of a file, in its order; empty when it is not there.
fn read(file: &Path) -> Result<Map<String, Value>, String> {
    use std::io::Read as _;
    let mut text = String::new();
    match std::fs::File::open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Map::new()),
        opened => opened
            .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(|error| format!("it cannot be read: {error}"))?,
    };
    if text.len() as u64 > MAX_FILE {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let value: Value =
        serde_json::from_str(&jsonc::plain(&text)).map_err(|error| format!("no JSON: {error}"))?;
    let entries = ["mcpServers", "servers"]
        .iter()
        .find_map(|key| value.get(key))
        .or_else(|| value.get("mcp").and_then(|mcp| mcp.get("servers")));
    match entries {
        Some(Value::Object(entries)) if entries.len() <= MAX_SERVERS => Ok(entries.clone()),
        Some(Value::Object(_)) => Err(format!("it has more than {MAX_SERVERS} servers")),
        Some(_) => Err("the servers must be an object of name and entry".to_owned()),
        None if value.is_object() => Ok(Map::new()),
        None => Err("it must hold an object with `mcpServers`".to_owned()),
    }
}

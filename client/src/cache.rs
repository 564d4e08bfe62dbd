//! The last known `tools/list` of every server, in one file.
//!
//! It answers what a server last advertised, and when, without starting it; and it lets a [`crate::Manager`] offer tools
//! before it connects. Entries are keyed by name and by the [`Fingerprint`] of the configuration that produced them, so that
//! an edit of the configuration makes the old entry void.
//!
//! One file rather than a folder of them: with as many servers as people configure, one small file is simpler to read, to
//! write atomically and to reason about. It is best effort: a file that is torn or not ours is ignored with a warning, and
//! so is a failure to write.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ramen_mcp::model::Implementation;
use serde::{Deserialize, Serialize};

use crate::config::Fingerprint;
use crate::list::Tool;
use crate::replace::Change;

/// What tells our file from another, and its layout from a later one.
const FORMAT: &str = "ramen-mcp-cache/1";
/// Largest file that is read.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// The file. Cheap to clone; holds nothing open.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
}

/// What one server advertised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Of the configuration that produced it.
    pub fingerprint: Fingerprint,
    /// When, in seconds since 1970.
    pub saved_at: u64,
    /// The revision of the protocol that was spoken.
    pub protocol_version: String,
    /// Who the server said it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<Implementation>,
    /// What it declared beside its tools: `prompts`, `resources`. Not known of entries of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offers: Option<Vec<String>>,
    /// Its tools.
    pub tools: Vec<Tool>,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    servers: BTreeMap<String, Entry>,
}

/// Why the file was not taken.
enum Unreadable {
    /// It is not there.
    Absent,
    /// Torn: no JSON. It may be replaced.
    Torn(String),
    /// Whole, and somebody else's or of a later version: it is left alone.
    Foreign,
    /// The system says no.
    Io(io::Error),
}

impl Entry {
    /// An entry of now.
    pub fn now(
        fingerprint: Fingerprint,
        protocol_version: impl Into<String>,
        server_info: Option<Implementation>,
        tools: Vec<Tool>,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            fingerprint,
            saved_at: now.map_or(0, |since| since.as_secs()),
            protocol_version: protocol_version.into(),
            server_info,
            offers: None,
            tools,
        }
    }
}

impl Cache {
    /// The cache in this file, which need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every entry, whatever its fingerprint: for people who want to know.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        match self.read() {
            Ok(file) => file.servers,
            Err(why) => {
                self.warn(&why);
                BTreeMap::new()
            }
        }
    }

    /// What this server advertised under this very configuration.
    pub fn get(&self, server: &str, fingerprint: &Fingerprint) -> Option<Entry> {
        let mut entries = self.entries();
        let entry = entries.remove(server)?;
        (entry.fingerprint == *fingerprint).then_some(entry)
    }

    /// Replaces the entry of a server: reads the file, changes it, and puts the new one in its place at once, so that a
    /// reader sees the old or the new one. Several writers wait for each other.
    pub fn put(&self, server: &str, entry: Entry) -> io::Result<()> {
        self.change(|servers| {
            servers.insert(server.to_owned(), entry);
        })
    }

    /// Drops the entries of servers that are not configured any more.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.change(|servers| servers.retain(|name, _| keep(name)))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Entry>)) -> io::Result<()> {
        let file = Change::begin(&self.path)?;
        let mut servers = match self.read() {
            Ok(file) => file.servers,
            Err(Unreadable::Foreign) => {
                self.warn(&Unreadable::Foreign);
                return Err(io::Error::other("the file is not a cache of ours"));
            }
            Err(Unreadable::Io(error)) => return Err(error),
            Err(why) => {
                self.warn(&why);
                BTreeMap::new()
            }
        };
        change(&mut servers);
        let content = File {
            format: FORMAT.to_owned(),
            servers,
        };
        file.replace(|out| Ok(serde_json::to_writer(out, &content)?))
    }

    fn read(&self) -> Result<File, Unreadable> {
        let file = match std::fs::File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Unreadable::Absent);
            }
            opened => opened.map_err(Unreadable::Io)?,
        };
        if !file.metadata().map_err(Unreadable::Io)?.is_file() {
            return Err(Unreadable::Foreign);
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(Unreadable::Io)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(Unreadable::Foreign);
        }
        let error = match serde_json::from_slice::<File>(&bytes) {
            Ok(file) if file.format == FORMAT => return Ok(file),
            Ok(_) => return Err(Unreadable::Foreign),
            Err(error) => error,
        };
        match serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
            Ok(_) => Err(Unreadable::Foreign),
            Err(_) => Err(Unreadable::Torn(error.to_string())),
        }
    }

    fn warn(&self, why: &Unreadable) {
        let path = self.path.display();
        match why {
            Unreadable::Absent => {}
            Unreadable::Torn(error) => {
                tracing::warn!(%path, error, "the cache of tool lists is torn and ignored");
            }
            Unreadable::Foreign => {
                tracing::warn!(%path, "the cache of tool lists is not of this program and ignored");
            }
            Unreadable::Io(error) => {
                tracing::warn!(%path, %error, "the cache of tool lists cannot be read and is ignored");
            }
        }
    }
}

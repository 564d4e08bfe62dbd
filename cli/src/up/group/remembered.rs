//! The memory of a group on disk, with where the code comes from that it is about: a name may be given to another source
//! between two starts, and that must not serve what the first one had.

use std::io;
use std::path::Path;

use ramen_rollout::Memory;
use serde::{Deserialize, Serialize};

use crate::state::{read_json, write_atomic};

/// As it is written; borrowed or read.
#[derive(Serialize, Deserialize)]
struct File<O, M> {
    /// Absent: it was written before this was kept.
    #[serde(default)]
    origin: Option<O>,
    #[serde(flatten)]
    memory: M,
}

/// What is remembered of this source; of any other one it is nothing.
pub(super) fn load(file: &Path, origin: &str) -> Memory {
    let known = read_json::<File<String, Memory>>(file);
    let same = known.filter(|known| known.origin.as_ref().is_none_or(|known| known == origin));
    same.map(|known| known.memory).unwrap_or_default()
}

/// Remembers it, as what this source gave.
pub(super) fn save(file: &Path, origin: &str, memory: &Memory) -> io::Result<()> {
    let origin = Some(origin);
    let text = serde_json::to_vec_pretty(&File { origin, memory })?;
    write_atomic(file, &text)
}

#[cfg(test)]
mod tests {
    use ramen_rollout::Revision;

    use super::*;

    #[test]
    fn what_is_remembered_is_of_its_source_alone() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("memory.json");
        let memory = Memory {
            observed: Some(Revision {
                commit: "1".repeat(40),
                label: "main@sha1:1".to_owned(),
            }),
            superseded: 2,
            ..Memory::default()
        };
        assert_eq!(load(&file, "/srv/shop"), Memory::default());
        save(&file, "/srv/shop", &memory).unwrap();
        assert_eq!(load(&file, "/srv/shop"), memory);
        let other = load(&file, "https://git.example/shop.git ");
        assert_eq!(other, Memory::default());
        // Who asks for layers alone reads it as it was.
        assert_eq!(read_json::<Memory>(&file), Some(memory.clone()));
        write_atomic(&file, &serde_json::to_vec(&memory).unwrap()).unwrap();
        assert_eq!(load(&file, "anything"), memory, "of an earlier version");
    }
}

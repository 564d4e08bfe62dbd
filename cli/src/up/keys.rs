//! Keys of a group on this machine: generated once, kept in files that only their owner can read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::state::{GroupDir, StateDir, make_dir, write_atomic};

/// Bytes of a generated key.
const BYTES: usize = 32;
/// The file of a generated MCP key.
const GENERATED: &str = "mcp-key";

/// A new key: a prefix and 256 bits of the system's randomness, in hex.
fn generate(prefix: &str) -> io::Result<String> {
    let mut bytes = [0_u8; BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes
        .iter()
        .fold(prefix.to_owned(), |key, byte| key + &format!("{byte:02x}")))
}

/// The admin key of a group's worker, made anew at each start: nobody else needs it.
pub(super) fn admin(dir: &GroupDir) -> io::Result<String> {
    let key = generate("rma_")?;
    write_atomic(&dir.admin_key(), format!("{key}\n").as_bytes())?;
    Ok(key)
}

/// A new MCP key.
pub(crate) fn new_key() -> io::Result<String> {
    generate("rmk_")
}

/// Whether the keys are those of a Secret.
pub(crate) fn has_given_keys(dir: &GroupDir) -> bool {
    dir.given_keys().exists()
}

/// Ends a key. The generated one, which commands on this machine use, is replaced by another.
pub(crate) fn end_key(dir: &GroupDir, name: &str) -> io::Result<()> {
    if name == GENERATED {
        return renew(dir).map(|_| ());
    }
    fs::remove_file(dir.keys().join(name))
}

/// A new MCP key in place of the generated one. Returns its file.
pub(super) fn renew(dir: &GroupDir) -> io::Result<PathBuf> {
    let file = dir.keys().join(GENERATED);
    write_atomic(&file, format!("{}\n", generate("rmk_")?).as_bytes())?;
    Ok(file)
}

/// The key of the platform's operations, made once.
pub(super) fn operator(state: &StateDir) -> io::Result<String> {
    let file = state.operator_key();
    match fs::read_to_string(&file) {
        Ok(key) if !key.trim().is_empty() => return Ok(key),
        _ => {}
    }
    let key = generate("rmk_")?;
    write_atomic(&file, format!("{key}\n").as_bytes())?;
    Ok(key)
}

/// Makes the key folder hold exactly these keys; without any, those made before, and a new one when there is none that
/// was generated. Returns the file that holds the first key, and whether it was made just now.
pub(super) fn lay(
    dir: &GroupDir,
    given: Option<&BTreeMap<String, Vec<u8>>>,
) -> io::Result<(PathBuf, bool)> {
    let folder = dir.keys();
    make_dir(&folder)?;
    let Some(given) = given else {
        let file = folder.join(GENERATED);
        if has_given_keys(dir) {
            // They were a Secret's, and that is gone.
            remove_others(&folder, |name| name == GENERATED)?;
            fs::remove_file(dir.given_keys())?;
        }
        if fs::read_to_string(&file).is_ok_and(|text| !text.trim().is_empty()) {
            return Ok((file, false));
        }
        write_atomic(&file, format!("{}\n", generate("rmk_")?).as_bytes())?;
        return Ok((file, true));
    };
    write_atomic(&dir.given_keys(), b"")?;
    for (name, value) in given {
        let file = folder.join(name);
        if fs::read(&file).ok().as_ref() != Some(value) {
            write_atomic(&file, value)?;
        }
    }
    remove_others(&folder, |name| given.contains_key(name))?;
    let first = given
        .keys()
        .next()
        .map_or_else(|| folder.clone(), |name| folder.join(name));
    Ok((first, false))
}

fn remove_others(folder: &Path, keep: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(&keep) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn group(root: &Path) -> GroupDir {
        StateDir::locate(Some(root))
            .unwrap()
            .group("default", "demo")
    }

    #[test]
    fn a_key_is_generated_once_and_private() {
        let temp = tempfile::tempdir().unwrap();
        let dir = group(temp.path());
        let (file, new) = lay(&dir, None).unwrap();
        let key = fs::read_to_string(&file).unwrap();
        assert!(new && key.starts_with("rmk_") && key.trim().len() == 4 + 64);
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::metadata(dir.keys()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(lay(&dir, None).unwrap(), (file.clone(), false));
        assert_eq!(fs::read_to_string(&file).unwrap(), key);
        assert_eq!(renew(&dir).unwrap(), file);
        assert_ne!(fs::read_to_string(&file).unwrap(), key);
    }

    #[test]
    fn keys_made_by_hand_stay_over_a_start_until_a_secret_takes_their_place() {
        let temp = tempfile::tempdir().unwrap();
        let dir = group(temp.path());
        let (generated, _) = lay(&dir, None).unwrap();
        write_atomic(&dir.keys().join("ci"), b"rmk_ci\n").unwrap();
        assert_eq!(lay(&dir, None).unwrap(), (generated.clone(), false));
        assert!(dir.keys().join("ci").exists() && !has_given_keys(&dir));
        let before = fs::read_to_string(&generated).unwrap();
        end_key(&dir, GENERATED).unwrap();
        assert_ne!(fs::read_to_string(&generated).unwrap(), before);
        end_key(&dir, "ci").unwrap();
        assert!(!dir.keys().join("ci").exists());
        let given = BTreeMap::from([("ci".to_owned(), b"rmk_1".to_vec())]);
        lay(&dir, Some(&given)).unwrap();
        assert!(has_given_keys(&dir));
        // Without the Secret its keys open nothing.
        lay(&dir, None).unwrap();
        assert!(!dir.keys().join("ci").exists() && !has_given_keys(&dir));
    }

    #[test]
    fn given_keys_replace_all_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = group(temp.path());
        lay(&dir, None).unwrap();
        let given = BTreeMap::from([
            ("a".to_owned(), b"rmk_1".to_vec()),
            ("b".to_owned(), b"rmk_2".to_vec()),
        ]);
        let (first, new) = lay(&dir, Some(&given)).unwrap();
        assert!(!new && first.ends_with("a"));
        assert_eq!(fs::read_dir(dir.keys()).unwrap().count(), 2);
        // No key at all is a choice too: it denies all.
        lay(&dir, Some(&BTreeMap::new())).unwrap();
        assert_eq!(fs::read_dir(dir.keys()).unwrap().count(), 0);
    }
}

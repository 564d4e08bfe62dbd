//! Tokens with which pods read layers: made from the operator's key, so that nothing need be stored.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use hmac::{Hmac, Mac as _};
use ramen_redact::Secret;
use ramen_source::Store;
use sha2::Sha256;

use crate::group::GroupKey;

const PREFIX: &str = "rar_";
/// How the token of a deploy begins.
pub(super) const ONE_TIME: &str = "rad_";
const FILE: &str = "read-key";
const LENGTH: usize = 32;

/// The operator's key. It lies in the store, so that all who use the store have the same.
#[derive(Debug, Clone)]
pub(crate) struct ReadKey(Secret<[u8; LENGTH]>);

impl ReadKey {
    /// Reads the key of a store, or makes it.
    pub(crate) async fn open(store: &Store) -> io::Result<Self> {
        let mut key = [0; LENGTH];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        if store.is_folder() {
            return Self::in_folder(store.root(), &key);
        }
        let kept = store.first(FILE, key.to_vec()).await;
        let bytes = kept.map_err(io::Error::other)?;
        Self::of(&bytes, FILE)
    }

    /// A folder of this machine, where nobody else may read it.
    fn in_folder(store: &Path, key: &[u8; LENGTH]) -> io::Result<Self> {
        let path = store.join(FILE);
        loop {
            match fs::read(&path) {
                Ok(bytes) => return Self::of(&bytes, &path.display().to_string()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            // Mode 0600 from the start, and never half a key under the name.
            let mut file = tempfile::NamedTempFile::new_in(store)?;
            file.write_all(key)?;
            file.as_file().sync_all()?;
            match file.persist_noclobber(&path) {
                Ok(_) => return Ok(Self(Secret::new(*key))),
                // Somebody else was faster; theirs counts.
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.error),
            }
        }
    }

    fn of(bytes: &[u8], place: &str) -> io::Result<Self> {
        let key = <[u8; LENGTH]>::try_from(bytes);
        let key = key.map_err(|_| io::Error::other(format!("{place} is damaged; remove it")))?;
        Ok(Self(Secret::new(key)))
    }

    /// The token of a group: `rar_<namespace>_<name>_<mac>`. Names of Kubernetes hold no `_`.
    pub(crate) fn token(&self, group: &GroupKey) -> Secret {
        let mac = self.mac(group).finalize().into_bytes();
        Secret::new(format!(
            "{PREFIX}{}_{}_{}",
            group.namespace,
            group.name,
            hex::encode(mac)
        ))
    }

    /// The group whose token this is.
    pub(crate) fn group_of(&self, token: &[u8]) -> Option<GroupKey> {
        let token = std::str::from_utf8(token).ok()?.strip_prefix(PREFIX)?;
        let mut parts = token.split('_');
        let (namespace, name, mac) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || namespace.is_empty() || name.is_empty() {
            return None;
        }
        let group = GroupKey::new(namespace, name);
        let mac = hex::decode(mac).ok()?;
        // In constant time.
        self.mac(&group).verify_slice(&mac).ok()?;
        Some(group)
    }

    fn mac(&self, group: &GroupKey) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(self.0.expose())
            .expect("HMAC takes keys of any length");
        mac.update(format!("read\n{}\n{}", group.namespace, group.name).as_bytes());
        mac
    }
}

/// A new token for one deploy.
pub(crate) fn one_time() -> io::Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(Secret::new(format!("{ONE_TIME}{}", hex::encode(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rand_key() -> [u8; LENGTH] {
        let mut key = [0; LENGTH];
        getrandom::fill(&mut key).unwrap();
        key
    }

    async fn open(dir: &Path) -> io::Result<ReadKey> {
        ReadKey::open(&Store::open(dir).unwrap()).await
    }

    #[tokio::test]
    async fn a_token_names_its_group_and_nothing_near_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let key = open(dir.path()).await.unwrap();
        let group = GroupKey::new("team-a", "calc");
        let token = key.token(&group).into_exposed();
        assert_eq!(key.group_of(token.as_bytes()), Some(group.clone()));
        let other = key.token(&GroupKey::new("team-b", "calc")).into_exposed();
        let mac = token.rsplit('_').next().unwrap();
        for wrong in [
            "",
            "rar_",
            "rar_team-a_calc_",
            &token[..token.len() - 2],
            &format!("{token}00"),
            &format!("{token}_x"),
            &format!("rar_team-b_calc_{mac}"),
            &format!("rar_team-a__{mac}"),
            &token.replace("rar_", "rad_"),
        ] {
            assert_eq!(key.group_of(wrong.as_bytes()), None, "{wrong}");
        }
        assert_ne!(token, other);
        assert_eq!(key.group_of(&[0xff, 0xfe]), None);
    }

    #[tokio::test]
    async fn the_key_is_the_same_for_all_who_use_the_store_and_for_nobody_else() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let group = GroupKey::new("a", "b");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let open = || ReadKey::in_folder(dir.path(), &rand_key()).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let token = keys[0].token(&group);
        assert!(keys.iter().all(|key| key.token(&group) == token));
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let elsewhere = tempfile::tempdir().unwrap();
        let other = open(elsewhere.path()).await.unwrap();
        assert_eq!(other.group_of(token.expose().as_bytes()), None);
        assert!(!format!("{other:?}").contains("ReadKey(["));
        assert_ne!(one_time().unwrap(), one_time().unwrap());
    }

    #[tokio::test]
    async fn a_damaged_key_is_told_rather_than_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), b"short").unwrap();
        let error = open(dir.path()).await.unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

//! The volumes of a pod as folders of this machine, and what its container is started with.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, KeyToPath, Pod, PodSpec, Secret, Volume,
};
use kube::{Api, Client, ResourceExt as _};

type Entries = BTreeMap<String, Vec<u8>>;

/// The files of a pod.
pub(super) struct Files {
    client: Client,
    namespace: String,
    dir: PathBuf,
    spec: PodSpec,
}

impl Files {
    pub(super) fn new(client: &Client, pod: &Pod, dir: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            client: client.clone(),
            namespace: pod.namespace().unwrap_or_default(),
            dir: dir.join(pod.uid().unwrap_or_default()),
            spec: pod.spec.clone().context("a pod without a spec")?,
        })
    }

    pub(super) fn container(&self) -> anyhow::Result<&Container> {
        let first = self.spec.containers.first();
        first.context("a pod without a container")
    }

    /// Brings all volumes up to date, as a kubelet does now and then.
    pub(super) async fn refresh(&self) -> anyhow::Result<()> {
        for volume in self.spec.volumes.iter().flatten() {
            let folder = self.dir.join(&volume.name);
            fs::create_dir_all(&folder)?;
            if volume.empty_dir.is_none() {
                put(&folder, &self.content(volume).await?)?;
            }
        }
        Ok(())
    }

    async fn content(&self, volume: &Volume) -> anyhow::Result<Entries> {
        if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            return Ok(picked(self.secret(name).await?, secret.items.as_deref()));
        }
        if let Some(map) = &volume.config_map {
            return Ok(picked(self.map(&map.name).await?, map.items.as_deref()));
        }
        let Some(projected) = &volume.projected else {
            bail!("volume {} is of a kind that is not played", volume.name);
        };
        let mut all = Entries::new();
        for source in projected.sources.iter().flatten() {
            if let Some(secret) = &source.secret {
                let entries = self.secret(&secret.name).await?;
                all.extend(picked(entries, secret.items.as_deref()));
            }
        }
        Ok(all)
    }

    async fn secret(&self, name: &str) -> anyhow::Result<Entries> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let data = api.get(name).await?.data.unwrap_or_default();
        Ok(data
            .into_iter()
            .map(|(name, value)| (name, value.0))
            .collect())
    }

    async fn map(&self, name: &str) -> anyhow::Result<Entries> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let data = api.get(name).await?.data.unwrap_or_default();
        Ok(data
            .into_iter()
            .map(|(name, value)| (name, value.into_bytes()))
            .collect())
    }

    /// The variables of the container, with its paths as they are here.
    pub(super) async fn env(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut env = Vec::new();
        for variable in self.container()?.env.iter().flatten() {
            env.push((variable.name.clone(), self.value(variable).await?));
        }
        Ok(env)
    }

    async fn value(&self, variable: &EnvVar) -> anyhow::Result<String> {
        if let Some(value) = &variable.value {
            return Ok(self.here(value));
        }
        let reference = variable.value_from.as_ref();
        let Some(reference) = reference.and_then(|from| from.secret_key_ref.as_ref()) else {
            return Ok(String::new());
        };
        let value = self.secret(&reference.name).await?.remove(&reference.key);
        let value = value.with_context(|| {
            format!(
                "couldn't find key {} in Secret {}",
                reference.key, reference.name
            )
        })?;
        Ok(String::from_utf8(value)?)
    }

    /// The arguments of the container, with its paths as they are here.
    pub(super) fn args(&self) -> anyhow::Result<Vec<String>> {
        let args = self.container()?.args.iter().flatten();
        Ok(args.map(|arg| self.here(arg)).collect())
    }

    /// A path below a mount as it is here; anything else stays.
    fn here(&self, text: &str) -> String {
        let mounts = self.container().map(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            let below = mounts.filter_map(|mount| {
                let rest = text.strip_prefix(&mount.mount_path)?;
                (rest.is_empty() || rest.starts_with('/')).then_some((
                    mount.mount_path.len(),
                    mount,
                    rest,
                ))
            });
            below.max_by_key(|(length, ..)| *length)
        });
        match mounts {
            Ok(Some((_, mount, rest))) => {
                format!("{}{rest}", self.dir.join(&mount.name).display())
            }
            _ => text.to_owned(),
        }
    }

    /// Where the container's output goes.
    pub(super) fn log(&self) -> anyhow::Result<fs::File> {
        fs::create_dir_all(&self.dir)?;
        let log = self.dir.join("log");
        Ok(fs::File::options().append(true).create(true).open(log)?)
    }

    pub(super) fn remove(&self) {
        // What is left is below the test's own folder.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn picked(mut entries: Entries, items: Option<&[KeyToPath]>) -> Entries {
    match items {
        None => entries,
        Some(items) => items
            .iter()
            .filter_map(|item| Some((item.path.clone(), entries.remove(&item.key)?)))
            .collect(),
    }
}

/// Makes a folder hold exactly these files; each is replaced as a whole.
fn put(folder: &Path, entries: &Entries) -> anyhow::Result<()> {
    for (name, value) in entries {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|old| old == *value) {
            continue;
        }
        // Outside of the folder: every file in it counts.
        let new = folder.with_extension("new");
        fs::write(&new, value)?;
        fs::rename(&new, &path)?;
    }
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| entries.contains_key(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_what_its_volume_does() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("keys");
        fs::create_dir(&folder).unwrap();
        let entries = |names: &[&str]| -> Entries {
            let entry = |name: &&str| ((*name).to_owned(), name.as_bytes().to_vec());
            names.iter().map(entry).collect()
        };
        put(&folder, &entries(&["a", "b"])).unwrap();
        put(&folder, &entries(&["b", "c"])).unwrap();
        assert!(!folder.join("a").exists());
        assert_eq!(fs::read(folder.join("c")).unwrap(), b"c");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

//! Phase one: reads every object that a group refers to. A Secret is read again only when the metadata
//! watch has seen another version of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret as KubeSecret};
use kube::api::ObjectMeta;
use kube::{Api, ResourceExt as _};
use ramen_crds::{LocalRef, McpGroup, SecretName};
use ramen_redact::Secret;

use super::{Context, GroupKey, State};
use crate::error::Error;
use crate::names::{self, child};

/// How much of the annotation `ramen.dev/rotate-keys-at` counts.
const MAX_TOKEN: usize = 256;

/// The entries of a Secret. Printing it shows no value.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretData(pub(crate) BTreeMap<String, Vec<u8>>);

/// A Secret as it was read: its version, its entries, and what its key was made for.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    version: String,
    data: Arc<SecretData>,
    made_for: Option<String>,
}

/// The Secrets of a group as they were read last, by name.
pub(crate) type SeenSecrets = HashMap<String, Seen>;

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A Secret that a group refers to; `None` when there is none of that name.
pub(crate) type Found = Option<Arc<SecretData>>;

/// What was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Referenced {
    /// `keys.secretRef`.
    pub(crate) keys: Option<Found>,
    /// `secrets`, in order.
    pub(crate) secrets: Vec<(String, Found)>,
    /// `source.secretRef`.
    pub(crate) source: Option<Found>,
    /// `source.caSecretRef`.
    pub(crate) ca: Option<Found>,
    /// Those that `upstreams` take values from, by name.
    pub(crate) upstreams: BTreeMap<String, Found>,
    /// The Secret with keys that this operator made, as it is now: people add keys to it.
    pub(crate) own_keys: Found,
    /// What this operator made for the group, or will make.
    pub(crate) own: Own,
}

/// Keys and tokens of a group that the operator makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// The callers' key, for groups that name no Secret.
    pub(crate) caller: Secret,
    /// The value of the annotation `ramen.dev/rotate-keys-at` that it was made for.
    pub(crate) made_for: Option<String>,
    /// The gateway's key.
    pub(crate) gateway: Secret,
    /// The key of `ramen.v1.Admin`.
    pub(crate) admin: Secret,
    /// The token for reading layers.
    pub(crate) artifacts: Option<Secret>,
}

/// The texts of the `ConfigMap`s of a group, as they were at the first run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembered {
    /// What the operator remembers.
    pub(crate) memory: Option<String>,
    /// What the pods serve.
    pub(crate) desired: Option<String>,
}

/// Reads everything.
pub(super) async fn read(
    ctx: &Context,
    group: &McpGroup,
    key: &GroupKey,
    state: &mut State,
) -> Result<Referenced, Error> {
    let spec = &group.spec;
    let uid = group.metadata.uid.as_deref().unwrap_or_default();
    let mut reader = Reader {
        ctx,
        key,
        secrets: Api::namespaced(ctx.client.clone(), &key.namespace),
        seen: std::mem::take(&mut state.secrets),
        kept: SeenSecrets::new(),
    };
    let mut referenced = Referenced {
        keys: reader
            .optional(spec.keys.as_ref().map(|keys| &keys.secret_ref))
            .await?,
        source: reader.optional(spec.source.secret_ref.as_ref()).await?,
        ca: reader.optional(spec.source.ca_secret_ref.as_ref()).await?,
        ..Referenced::default()
    };
    for reference in spec.secrets.iter().take(32) {
        let found = reader.optional(Some(reference)).await?.flatten();
        referenced.secrets.push((reference.name.clone(), found));
    }
    for upstream in spec.upstreams.iter().take(16) {
        for reference in upstream.secrets() {
            let local = LocalRef {
                name: reference.name.clone(),
            };
            let found = reader.optional(Some(&local)).await?.flatten();
            referenced.upstreams.insert(local.name, found);
        }
    }
    let annotations = group.metadata.annotations.as_ref();
    let rotate = annotations.and_then(|all| all.get(names::ROTATE_KEYS_AT));
    let rotate = rotate.map(|token| token.chars().take(MAX_TOKEN).collect::<String>());
    referenced.own_keys = own_keys(&mut reader, uid, rotate.as_deref()).await?;
    let keys = referenced.own_keys.clone();
    referenced.own = own(&mut reader, keys.as_deref(), uid, rotate).await?;
    state.secrets = reader.kept;
    Ok(referenced)
}

struct Reader<'c> {
    ctx: &'c Context,
    key: &'c GroupKey,
    secrets: Api<KubeSecret>,
    seen: SeenSecrets,
    kept: SeenSecrets,
}

impl Reader<'_> {
    async fn optional(&mut self, reference: Option<&LocalRef>) -> Result<Option<Found>, Error> {
        // A name that no object can have is a fault of the spec; `validate` says so.
        match reference.filter(|reference| SecretName::parse(&reference.name).is_ok()) {
            Some(reference) => self.secret(&reference.name, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// A Secret's entries; with an owner, only of a Secret that is his.
    async fn secret(&mut self, name: &str, owner: Option<&str>) -> Result<Found, Error> {
        if let Some(kept) = self.kept.get(name) {
            return Ok(Some(Arc::clone(&kept.data)));
        }
        let version = self
            .ctx
            .caches
            .secrets
            .get(&self.key.namespace, name)
            .and_then(|meta| meta.metadata.resource_version.clone());
        if let (Some(version), Some(seen)) = (&version, self.seen.remove(name))
            && *version == seen.version
        {
            let found = Some(Arc::clone(&seen.data));
            self.kept.insert(name.to_owned(), seen);
            return Ok(found);
        }
        self.fresh(name, owner).await
    }

    /// The same, as it is now, whatever the watch has seen.
    async fn fresh(&mut self, name: &str, owner: Option<&str>) -> Result<Found, Error> {
        self.kept.remove(name);
        let read = self.secrets.get_opt(name).await;
        let secret = read.map_err(|source| Error::Api {
            verb: "read",
            object: format!("Secret {}/{name}", self.key.namespace),
            source: Box::new(source),
        })?;
        let Some(secret) =
            secret.filter(|secret| owner.is_none_or(|uid| owned(&secret.metadata, uid)))
        else {
            return Ok(None);
        };
        let version = secret.resource_version().unwrap_or_default();
        let made_for = secret.annotations().get(names::KEY_MADE_FOR).cloned();
        let entries = secret.data.unwrap_or_default();
        let entries = entries.into_iter().map(|(name, value)| (name, value.0));
        let data = Arc::new(SecretData(entries.collect()));
        let seen = Seen {
            version,
            data: Arc::clone(&data),
            made_for,
        };
        self.kept.insert(name.to_owned(), seen);
        Ok(Some(data))
    }

    fn made_for(&self, name: &str) -> Option<String> {
        self.kept.get(name)?.made_for.clone()
    }
}

/// Whether an object's controller has this uid.
pub(super) fn owned(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references
        .iter()
        .flatten()
        .any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// The Secret with the keys that this operator made, read anew when another key is asked for: the watch
/// may be behind what was written in the last run, and a key is thrown away once.
async fn own_keys(
    reader: &mut Reader<'_>,
    uid: &str,
    rotate: Option<&str>,
) -> Result<Found, Error> {
    let name = child::keys(&reader.key.name);
    let found = reader.secret(&name, Some(uid)).await?;
    if found.is_some() && rotate.is_some() && reader.made_for(&name).as_deref() != rotate {
        return reader.fresh(&name, Some(uid)).await;
    }
    Ok(found)
}

async fn own(
    reader: &mut Reader<'_>,
    keys: Option<&SecretData>,
    uid: &str,
    rotate: Option<String>,
) -> Result<Own, Error> {
    let name = reader.key.name.clone();
    let is_made = rotate.is_none() || reader.made_for(&child::keys(&name)) == rotate;
    let admin = reader.secret(&child::admin_key(&name), Some(uid)).await?;
    Ok(Own {
        caller: kept_or_new(keys.filter(|_| is_made), names::KEY_KEY, "rmk_")?,
        made_for: rotate,
        gateway: kept_or_new(keys, names::GATEWAY_KEY, "rmk_")?,
        admin: kept_or_new(admin.as_deref(), names::KEY_KEY, "rma_")?,
        artifacts: Some(reader.ctx.work.artifacts.read_token(reader.key)),
    })
}

/// The value that is there, or a new one: a prefix and 256 random bits.
fn kept_or_new(data: Option<&SecretData>, key: &str, prefix: &str) -> Result<Secret, Error> {
    let kept = data
        .and_then(|data| data.0.get(key))
        .and_then(|value| std::str::from_utf8(value).ok())
        .map(str::trim)
        .filter(|value| !value.is_empty());
    if let Some(kept) = kept {
        return Ok(Secret::from(kept.to_owned()));
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Internal(format!("no random numbers: {error}")))?;
    Ok(Secret::from(format!("{prefix}{}", hex::encode(bytes))))
}

/// Reads what is remembered of a group.
pub(super) async fn remembered(
    ctx: &Context,
    key: &GroupKey,
    uid: &str,
) -> Result<Remembered, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let entry = async |name: String, entry: &str| {
        let read = maps.get_opt(&name).await.map_err(|source| Error::Api {
            verb: "read",
            object: format!("ConfigMap {}/{name}", key.namespace),
            source: Box::new(source),
        })?;
        let map = read.filter(|map| owned(&map.metadata, uid));
        Ok(map.and_then(|map| map.data?.remove(entry)))
    };
    Ok(Remembered {
        memory: entry(child::rollout(&key.name), names::MEMORY_KEY).await?,
        desired: entry(child::desired(&key.name), names::DESIRED_KEY).await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_kept() {
        let made = kept_or_new(None, "key", "rmk_").unwrap();
        assert_eq!(made.expose().len(), 4 + 64);
        assert_ne!(made, kept_or_new(None, "key", "rmk_").unwrap());
        let data = SecretData(BTreeMap::from([("key".to_owned(), b"rmk_old\n".to_vec())]));
        assert_eq!(
            kept_or_new(Some(&data), "key", "rmk_").unwrap().expose(),
            "rmk_old"
        );
        assert_eq!(format!("{data:?}"), r#"{"key"}"#);
    }
}

//! Phase one: reads every object that a group refers to. A Secret is read again only when the metadata
//! watch has seen another version of it.

use std::collections::BTreeMap;
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

/// The entries of a Secret. Printing it shows no value.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretData(pub(crate) BTreeMap<String, Vec<u8>>);

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
        kept: std::collections::HashMap::new(),
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
    referenced.own_keys = reader.secret(&child::keys(&key.name), Some(uid)).await?;
    referenced.own = own(&mut reader, referenced.own_keys.as_deref(), uid).await?;
    state.secrets = reader.kept;
    if state.rollout.is_none() && state.remembered.is_none() {
        state.remembered = Some(remembered(ctx, key, uid).await?);
    }
    Ok(referenced)
}

struct Reader<'c> {
    ctx: &'c Context,
    key: &'c GroupKey,
    secrets: Api<KubeSecret>,
    seen: std::collections::HashMap<String, (String, Arc<SecretData>)>,
    kept: std::collections::HashMap<String, (String, Arc<SecretData>)>,
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
        if let Some((_, data)) = self.kept.get(name) {
            return Ok(Some(Arc::clone(data)));
        }
        let version = self
            .ctx
            .caches
            .secrets
            .get(&self.key.namespace, name)
            .and_then(|meta| meta.metadata.resource_version.clone());
        if let (Some(version), Some((seen, data))) = (&version, self.seen.remove(name))
            && *version == seen
        {
            let found = Some(Arc::clone(&data));
            self.kept.insert(name.to_owned(), (seen, data));
            return Ok(found);
        }
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
        let entries = secret.data.unwrap_or_default();
        let entries = entries.into_iter().map(|(name, value)| (name, value.0));
        let data = Arc::new(SecretData(entries.collect()));
        self.kept
            .insert(name.to_owned(), (version, Arc::clone(&data)));
        Ok(Some(data))
    }
}

/// Whether an object's controller has this uid.
pub(super) fn owned(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references
        .iter()
        .flatten()
        .any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

async fn own(reader: &mut Reader<'_>, keys: Option<&SecretData>, uid: &str) -> Result<Own, Error> {
    let name = reader.key.name.clone();
    let admin = reader.secret(&child::admin_key(&name), Some(uid)).await?;
    Ok(Own {
        caller: kept_or_new(keys, names::KEY_KEY, "rmk_")?,
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

async fn remembered(ctx: &Context, key: &GroupKey, uid: &str) -> Result<Remembered, Error> {
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

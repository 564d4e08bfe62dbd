//! Phase two, pure: from what was read to a group that can be acted on. Nothing after it reads the spec
//! as written.

use std::collections::BTreeMap;
use std::sync::Arc;

use ramen_crds::gateway::UpstreamEntry;
use ramen_crds::{
    ErrorEntry, McpGroup, Reach, RefSpec, SecretName, Upstream, ValidatedGroup, secret_variables,
};
use ramen_group::{Finding, Reason, keys_of_entries};
use ramen_redact::{KeySet, Secret};
use ramen_source::git::{Credentials, GitLimits, GitUrl, Remote, UrlPolicy, Wanted};
use sha2::{Digest as _, Sha256};

use super::dereference::{Found, Own, Referenced, SecretData};
use super::{GroupKey, Operator, Outcome};
use crate::names;

/// A group that can be acted on.
#[derive(Debug, Clone)]
pub(crate) struct Validated {
    pub(crate) key: GroupKey,
    pub(crate) uid: String,
    pub(crate) spec: ValidatedGroup,
    /// Variables of the pods: name → Secret and key.
    pub(crate) variables: BTreeMap<String, (String, String)>,
    /// Changes when a value of them changes; says nothing about the values.
    pub(crate) secrets_hash: Option<String>,
    pub(crate) remote: Remote,
    pub(crate) wanted: Wanted,
    pub(crate) own: Own,
    /// The keys that callers may show.
    pub(crate) callers: KeySet,
    /// Other MCP servers, with their values filled in.
    pub(crate) upstreams: Vec<UpstreamEntry>,
    /// The annotation `ramen.dev/requested-at`.
    pub(crate) requested: Option<String>,
    /// What it names and is not there or cannot be used, and costs no more than itself; for the errors list.
    pub(crate) faults: Vec<Finding>,
}

impl Validated {
    /// The image that deploys run with.
    pub(crate) fn image<'a>(&'a self, operator: &'a Operator) -> &'a str {
        self.spec
            .worker
            .image
            .as_ref()
            .unwrap_or(&operator.worker_image)
    }

    /// As it was, with the keys and the values of now: one that was thrown away meanwhile must not come back.
    pub(crate) fn held(&self, group: &McpGroup, referenced: &Referenced) -> Self {
        let mut held = self.clone();
        held.own = referenced.own.clone();
        match (&self.spec.keys, &group.spec.keys) {
            (None, _) => {
                held.callers = callers(None, referenced.own_keys.as_deref(), &held.own);
            }
            (Some(name), Some(keys)) if keys.secret_ref.name == name.as_str() => {
                match &referenced.keys {
                    Some(Some(data)) => {
                        held.callers = callers(Some(data.as_ref()), None, &held.own);
                    }
                    // With the Secret all its keys were thrown away.
                    Some(None) => held.callers = KeySet::default(),
                    None => {}
                }
            }
            // Of another Secret than the pods have.
            (Some(_), _) => {}
        }
        for (upstream, entry) in self.spec.upstreams.iter().zip(&mut held.upstreams) {
            let settings = match &upstream.reach {
                Reach::Http { headers, .. } => headers,
                Reach::Command { env, .. } => env,
            };
            // Those of other Secrets than the group names now were not read.
            let mut secrets = settings.secrets();
            if secrets.all(|name| referenced.upstreams.contains_key(name.as_str())) {
                *entry = filled_in(upstream, &referenced.upstreams);
            }
        }
        held
    }
}

/// Why a group cannot be acted on before somebody changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Invalid {
    /// All reasons there are.
    const REASONS: &[Reason] = &[
        Reason::InvalidSpec,
        Reason::SecretMissing,
        Reason::SecretKeyMissing,
        Reason::SourceInvalid,
    ];

    /// Whether an entry of the errors list says why a group cannot be acted on.
    pub(crate) fn is_told_by(entry: &ErrorEntry) -> bool {
        let mut reasons = Self::REASONS.iter();
        entry.package.is_none() && reasons.any(|reason| reason.as_str() == entry.reason)
    }

    /// For the errors list.
    pub(crate) fn finding(&self) -> Finding {
        Finding::group(self.reason, self.message.clone())
    }

    /// Where it leaves the group.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::Stalled {
            reason: self.reason.as_str(),
            message: self.message.clone(),
        }
    }
}

/// Validates.
pub(crate) fn validate(
    group: &McpGroup,
    key: &GroupKey,
    referenced: Referenced,
    operator: &Operator,
) -> Result<Validated, Invalid> {
    let spec = ramen_crds::validate(group).map_err(|faults| {
        let faults: Vec<String> = faults.iter().take(8).map(ToString::to_string).collect();
        Invalid {
            reason: Reason::InvalidSpec,
            message: faults.join("; "),
        }
    })?;
    let Referenced {
        keys,
        secrets,
        source,
        ca,
        upstreams,
        own_keys,
        own,
    } = referenced;
    let keys = present("spec.keys.secretRef", spec.keys.as_ref(), keys)?;
    let mut found = Vec::new();
    for ((name, data), secret) in secrets.into_iter().zip(&spec.secrets) {
        let data = present("spec.secrets", Some(secret), Some(data))?;
        found.extend(data.map(|data| (name, data)));
    }
    let source = present("spec.source.secretRef", spec.source.secret.as_ref(), source)?;
    let ca = present(
        "spec.source.caSecretRef",
        spec.source.ca_secret.as_ref(),
        ca,
    )?;
    let remote = remote(&spec, source.as_deref(), ca.as_deref(), operator)?;
    let pairs = found
        .iter()
        .flat_map(|(name, data)| data.0.keys().map(|key| (name.as_str(), key.as_str())));
    let (variables, faults) = secret_variables(&key.name, pairs);
    let callers = callers(keys.as_deref(), own_keys.as_deref(), &own);
    let upstreams: Vec<_> = spec
        .upstreams
        .iter()
        .map(|upstream| filled_in(upstream, &upstreams))
        .collect();
    let mut faults: Vec<_> = faults
        .iter()
        .map(|fault| Finding::group(Reason::SecretKeyRefused, fault.to_string()))
        .collect();
    let left_out = spec.worker.left_out.iter();
    faults.extend(left_out.map(|one| Finding::group(Reason::VariableRefused, one.to_string())));
    faults.extend(unknown_keys(&spec, &callers));
    faults.extend(upstreams.iter().filter_map(unusable_upstream));
    let annotations = group.metadata.annotations.as_ref();
    let requested = annotations.and_then(|all| all.get(names::REQUESTED_AT));
    Ok(Validated {
        key: key.clone(),
        uid: group.metadata.uid.clone().unwrap_or_default(),
        secrets_hash: secrets_hash(&own.admin, &found),
        variables,
        remote,
        wanted: wanted(&spec.source.reference),
        callers,
        own,
        upstreams,
        requested: requested.map(|token| token.chars().take(256).collect()),
        faults,
        spec,
    })
}

/// The keys that workers take from callers: those of the Secret that is named, else those of our own, in which the
/// gateways' key stands too.
fn callers(named: Option<&SecretData>, own_keys: Option<&SecretData>, own: &Own) -> KeySet {
    let entries = |data: &'_ SecretData| keys_of_entries(data.0.iter().map(|(k, v)| (&**k, &**v)));
    if let Some(named) = named {
        return entries(named);
    }
    let mut others = own_keys.cloned().unwrap_or_default();
    others.0.remove(names::GATEWAY_KEY);
    others.0.remove(names::KEY_KEY);
    let mut keys = entries(&others);
    keys.add_named(Some(names::KEY_KEY), own.caller.expose());
    keys
}

/// Rules that name keys which are not there shut out everybody else all the same: that must not stay unseen.
fn unknown_keys(spec: &ValidatedGroup, callers: &KeySet) -> Vec<Finding> {
    let Some(rules) = &spec.access else {
        return Vec::new();
    };
    rules
        .unknown_keys(|name| callers.has_name(name))
        .into_iter()
        .map(|(field, key)| {
            let message = format!("spec.access.{field}: the group has no key named {key}");
            Finding::group(Reason::AccessKeyUnknown, message)
        })
        .collect()
}

/// An upstream with the values of these Secrets.
fn filled_in(upstream: &Upstream, secrets: &BTreeMap<String, Found>) -> UpstreamEntry {
    UpstreamEntry::new(upstream, |secret, key| {
        let found = secrets.get(secret.as_str())?.as_ref()?;
        found.0.get(key).map(Vec::as_slice)
    })
}

/// One whose Secret is not there costs its own tools alone.
fn unusable_upstream(upstream: &UpstreamEntry) -> Option<Finding> {
    let fault = upstream.fault.as_ref()?;
    let message = format!("spec.upstreams {}: {fault}", upstream.name);
    Some(Finding::group(Reason::UpstreamUnusable, message))
}

fn present(field: &str, name: Option<&SecretName>, found: Option<Found>) -> Result<Found, Invalid> {
    match (name, found) {
        (None, _) => Ok(None),
        (Some(_), Some(Some(data))) => Ok(Some(data)),
        (Some(name), _) => Err(Invalid {
            reason: Reason::SecretMissing,
            message: format!(
                "{field}: there is no Secret {name} in this namespace; make it and the group goes on"
            ),
        }),
    }
}

fn remote(
    spec: &ValidatedGroup,
    secret: Option<&SecretData>,
    ca: Option<&SecretData>,
    operator: &Operator,
) -> Result<Remote, Invalid> {
    let unusable = |field: &str, error: &dyn std::fmt::Display| Invalid {
        reason: Reason::SourceInvalid,
        message: format!("{field}: {error}"),
    };
    let url = GitUrl::parse(spec.source.url.as_str())
        .map_err(|error| unusable("spec.source.url", &error))?;
    let mut files = secret.map(|data| data.0.clone()).unwrap_or_default();
    if let Some(ca) = ca {
        let Some(certificates) = ca.0.get("ca.crt") else {
            return Err(Invalid {
                reason: Reason::SecretKeyMissing,
                message: "spec.source.caSecretRef: the Secret has no key `ca.crt`".to_owned(),
            });
        };
        files.insert("ca.crt".to_owned(), certificates.clone());
    }
    let credentials = Credentials::from_files(&files)
        .map_err(|error| unusable("spec.source.secretRef", &error))?;
    let mut remote = Remote::new(url);
    remote.credentials = Arc::new(credentials);
    remote.limits = GitLimits {
        timeout: spec.source.timeout,
        ..GitLimits::default()
    };
    remote.policy = UrlPolicy {
        http: operator.allow_http,
        ..UrlPolicy::cluster()
    };
    Ok(remote)
}

fn wanted(reference: &RefSpec) -> Wanted {
    match reference {
        RefSpec::Default => Wanted::Head,
        RefSpec::Branch(name) => Wanted::Branch(name.clone()),
        RefSpec::Tag(name) => Wanted::Tag(name.clone()),
        RefSpec::Semver(range) => Wanted::Semver(range.to_string()),
        RefSpec::Commit(id) => Wanted::Commit {
            id: id.clone(),
            branch: None,
        },
        RefSpec::Name(name) => Wanted::named(name),
    }
}

/// A keyed hash: without the key, short values cannot be guessed from it.
fn secrets_hash(key: &Secret, secrets: &[(String, Arc<SecretData>)]) -> Option<String> {
    if secrets.is_empty() {
        return None;
    }
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(key.expose().as_bytes());
    for (name, data) in secrets {
        part(name.as_bytes());
        for (key, value) in &data.0 {
            part(key.as_bytes());
            part(value);
        }
    }
    Some(hex::encode(&hash.finalize()[..8]))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::super::build::Network;
    use super::*;

    pub(crate) fn operator() -> Operator {
        Operator {
            worker_image: "ramen-worker:1".to_owned(),
            image_pull_policy: "IfNotPresent".to_owned(),
            artifacts_url: "http://ramen-artifacts.ramen:8081".to_owned(),
            bucket: None,
            allow_http: false,
            gateways: None,
            network: Network::new(Some("ramen".to_owned()), Vec::new(), Vec::new()),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "reads better where it is called"
    )]
    pub(crate) fn group(extra: serde_json::Value) -> McpGroup {
        let mut spec = json!({
            "source": {"url": "https://git.example/team/tools"},
            "network": {"allowedCIDRs": ["10.0.0.0/8"]},
        });
        for (name, value) in extra.as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
            "metadata": {"name": "calc", "namespace": "team-a", "uid": "u-1", "generation": 3},
            "spec": spec,
        }))
        .unwrap()
    }

    pub(crate) fn data(entries: &[(&str, &str)]) -> Arc<SecretData> {
        let entries = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Arc::new(SecretData(entries.collect()))
    }

    pub(crate) fn referenced() -> Referenced {
        Referenced {
            own: Own {
                made_for: None,
                caller: Secret::from("rmk_caller".to_owned()),
                gateway: Secret::from("rmk_gateway".to_owned()),
                admin: Secret::from("rma_admin".to_owned()),
                artifacts: Some(Secret::from("rmt_token".to_owned())),
            },
            ..Referenced::default()
        }
    }

    pub(crate) fn validated(extra: serde_json::Value, referenced: Referenced) -> Validated {
        validate(
            &group(extra),
            &GroupKey::new("team-a", "calc"),
            referenced,
            &operator(),
        )
        .unwrap()
    }

    #[test]
    fn a_secret_that_is_missing_is_named_and_waited_for() {
        let group = group(json!({"secrets": [{"name": "weather"}]}));
        let key = GroupKey::new("team-a", "calc");
        let missing = Referenced {
            secrets: vec![("weather".to_owned(), None)],
            ..referenced()
        };
        let invalid = validate(&group, &key, missing, &operator()).unwrap_err();
        assert_eq!(invalid.reason, Reason::SecretMissing);
        assert!(invalid.message.contains("weather"));
        let there = Referenced {
            secrets: vec![(
                "weather".to_owned(),
                Some(data(&[("TOKEN", "s3cret"), ("a b", "x")])),
            )],
            ..referenced()
        };
        let validated = validate(&group, &key, there, &operator()).unwrap();
        let (secret, entry) = &validated.variables["RAMEN_SECRET_CALC__TOKEN"];
        assert_eq!((secret.as_str(), entry.as_str()), ("weather", "TOKEN"));
        let [refused] = &validated.faults[..] else {
            panic!("{:?}", validated.faults)
        };
        assert_eq!(refused.reason, Reason::SecretKeyRefused);
        assert!(!format!("{validated:?}").contains("s3cret"));
    }

    #[test]
    fn a_secret_without_the_key_that_is_needed_is_named() {
        let source = json!({
            "url": "https://git.example/team/tools", "caSecretRef": {"name": "authority"},
        });
        let group = group(json!({ "source": source }));
        let key = GroupKey::new("team-a", "calc");
        let without = Referenced {
            ca: Some(Some(data(&[("tls.crt", "x")]))),
            ..referenced()
        };
        let invalid = validate(&group, &key, without, &operator()).unwrap_err();
        assert_eq!(invalid.reason, Reason::SecretKeyMissing);
        assert!(invalid.message.contains("`ca.crt`"), "{}", invalid.message);
    }

    #[test]
    fn what_a_group_names_and_is_not_there_is_told_and_costs_no_more() {
        let rules =
            json!([{"keys": ["key"], "tools": ["add"]}, {"keys": ["ci", "key"], "tools": ["*"]}]);
        let token = json!({"name": "other", "key": "token"});
        let upstream = json!({
            "name": "other", "url": "https://mcp.example.com/mcp",
            "headers": [{"name": "Authorization", "secretRef": token}],
        });
        let spec = json!({"access": {"rules": rules}, "upstreams": [upstream]});
        let told = validated(spec.clone(), referenced()).faults;
        let told: Vec<_> = told.iter().map(|one| (one.reason, &*one.message)).collect();
        let [(first, key), (second, upstream)] = told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(first, Reason::AccessKeyUnknown);
        assert_eq!(
            key,
            "spec.access.rules[1].keys: the group has no key named ci"
        );
        assert_eq!(second, Reason::UpstreamUnusable);
        assert!(upstream.starts_with("spec.upstreams other: "), "{upstream}");
        let there = Referenced {
            own_keys: Some(data(&[("ci", "rmk_ci")])),
            upstreams: [("other".to_owned(), Some(data(&[("token", "t")])))].into(),
            ..referenced()
        };
        assert_eq!(validated(spec, there).faults, []);
    }

    #[test]
    fn keys_and_values_that_were_thrown_away_do_not_come_back_in_what_is_held() {
        let token = json!({"name": "other", "key": "token"});
        let upstream = json!({
            "name": "other", "url": "https://mcp.example.com/mcp",
            "headers": [{"name": "Authorization", "secretRef": token}],
        });
        let spec = json!({"keys": {"secretRef": {"name": "mine"}}, "upstreams": [upstream]});
        let found = |keys: Option<&str>, token: Option<&str>| Referenced {
            keys: Some(keys.map(|key| data(&[("ci", key)]))),
            upstreams: [(
                "other".to_owned(),
                token.map(|token| data(&[("token", token)])),
            )]
            .into(),
            ..referenced()
        };
        let valid = validated(spec.clone(), found(Some("rmk_1"), Some("t1")));
        let held = |found: &Referenced| valid.held(&group(spec.clone()), found);
        let same = held(&found(Some("rmk_1"), Some("t1")));
        assert_eq!(
            (&same.callers, &same.upstreams),
            (&valid.callers, &valid.upstreams)
        );
        assert!(same.callers.admits("rmk_1"));
        let other = held(&found(Some("rmk_2"), Some("t2")));
        assert!(other.callers.admits("rmk_2") && !other.callers.admits("rmk_1"));
        assert_eq!(other.upstreams[0].values["Authorization"], "t2");
        let gone = held(&found(None, None));
        assert!(gone.callers.is_empty());
        assert!(gone.upstreams[0].fault.is_some() && gone.upstreams[0].values.is_empty());
        // One whose Secret the group names no more was not read.
        let unread = Referenced {
            upstreams: BTreeMap::new(),
            ..found(Some("rmk_1"), None)
        };
        assert_eq!(held(&unread).upstreams, valid.upstreams);
    }

    #[test]
    fn the_hash_of_secrets_changes_with_a_value_and_tells_none() {
        let hash = |value: &str| {
            let secrets = [("weather".to_owned(), data(&[("TOKEN", value)]))];
            secrets_hash(&Secret::from("k".to_owned()), &secrets).unwrap()
        };
        assert_eq!(hash("a"), hash("a"));
        assert_ne!(hash("a"), hash("b"));
        assert_eq!(secrets_hash(&Secret::from("k".to_owned()), &[]), None);
    }

    #[test]
    fn all_faults_of_a_spec_are_told_at_once() {
        let group = group(json!({
            "network": {"allowedCIDRs": ["10.0.0.0/99"]},
            "zones": [{"name": "UP"}],
        }));
        let key = GroupKey::new("team-a", "calc");
        let invalid = validate(&group, &key, referenced(), &operator()).unwrap_err();
        assert_eq!(invalid.reason, Reason::InvalidSpec);
        assert!(
            invalid.message.contains("allowedCIDRs[0]") && invalid.message.contains("zones[0]")
        );
    }
}

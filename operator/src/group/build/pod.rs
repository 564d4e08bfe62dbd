//! What worker pods and deploy pods share: the restricted Pod Security Standard, folders, variables.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    LocalObjectReference, PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile,
    SecretKeySelector, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Operator, Validated};
use crate::names::{self, child};

/// Folder of the group's private files.
pub(super) const RUN: &str = "/run/ramen";
/// Folder of unpacked layers.
pub(super) const CACHE: &str = "/var/cache/ramen";
/// Folder for everything that is written by the way.
pub(super) const TMP: &str = "/tmp";

/// Requests and limits where the group names none.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("cpu", "100m", "2"),
    ("memory", "256Mi", "1Gi"),
    ("ephemeral-storage", "256Mi", "6Gi"),
];

/// A pod's frame: account without token, no variables of Services, no rights.
pub(super) fn spec(group: &Validated, container: Container, volumes: Vec<Volume>) -> PodSpec {
    let worker = &group.spec.worker;
    let pull: Vec<_> = worker
        .image_pull_secrets
        .iter()
        .map(|name| LocalObjectReference {
            name: name.to_string(),
        })
        .collect();
    PodSpec {
        service_account_name: Some(child::account(&group.key.name)),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: (!pull.is_empty()).then_some(pull),
        priority_class_name: worker.priority_class_name.clone(),
        runtime_class_name: worker.runtime_class_name.clone(),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(names::UID),
            run_as_group: Some(names::UID),
            fs_group: Some(names::UID),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container],
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

/// A container's frame.
pub(super) fn container(operator: &Operator, image: &str, name: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(operator.image_pull_policy.clone()),
        command: Some(vec!["ramen-worker".to_owned()]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// Requests and limits: what the group says, the rest filled in. What is given once counts for both.
pub(super) fn resources(given: Option<&ResourceRequirements>) -> ResourceRequirements {
    let mut filled = given.cloned().unwrap_or_default();
    let requests = filled.requests.get_or_insert_default();
    let limits = filled.limits.get_or_insert_default();
    for (name, request, limit) in DEFAULTS {
        let name = (*name).to_owned();
        match (requests.get(&name).cloned(), limits.get(&name).cloned()) {
            (Some(request), None) => {
                limits.insert(name, request);
            }
            (None, Some(limit)) => {
                requests.insert(name, limit);
            }
            (None, None) => {
                requests.insert(name.clone(), Quantity((*request).to_owned()));
                limits.insert(name, Quantity((*limit).to_owned()));
            }
            (Some(_), Some(_)) => {}
        }
    }
    filled
}

/// A variable.
pub(super) fn var(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        ..EnvVar::default()
    }
}

/// The group's own variables, with the names of those that the code gets, then its secrets.
pub(super) fn group_env(group: &Validated) -> impl Iterator<Item = EnvVar> {
    let named = group.spec.worker.code_variables();
    let named = (!named.is_empty()).then(|| var("RAMEN_HOST_ENV", named));
    let plain = group.spec.worker.env.iter();
    let plain = plain.map(|(name, value)| var(name, value.clone()));
    let secret = group.variables.iter().map(|(name, (secret, key))| EnvVar {
        name: name.clone(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.clone(),
                key: key.clone(),
                ..SecretKeySelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
    named.into_iter().chain(plain).chain(secret)
}

/// Where programs of others put their files.
pub(super) fn folders() -> [EnvVar; 5] {
    [
        var("HOME", "/tmp/home"),
        var("TMPDIR", TMP),
        var("XDG_CACHE_HOME", "/tmp/home/.cache"),
        var("XDG_DATA_HOME", "/tmp/home/.local/share"),
        var("XDG_CONFIG_HOME", "/tmp/home/.config"),
    ]
}

/// An empty folder of at most this size.
pub(super) fn empty(name: &str, limit: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: Some(Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A Secret as files.
pub(super) fn secret(name: &str, secret: String) -> Volume {
    Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A `ConfigMap` as files.
pub(super) fn config_map(name: &str, config_map: String) -> Volume {
    Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map,
            default_mode: Some(0o444),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Where a volume lies.
pub(super) fn mount(name: &str, path: impl Into<String>, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.into(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}

/// A number of seconds as variables and fields have it.
pub(super) fn seconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Labels that a group adds; its own come last and win.
pub(super) fn merged(
    added: &BTreeMap<String, String>,
    own: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut merged = added.clone();
    merged.extend(own);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_has_requests_and_limits() {
        let quantity = |text: &str| Quantity(text.to_owned());
        let given = ResourceRequirements {
            requests: Some(BTreeMap::from([("memory".to_owned(), quantity("4Gi"))])),
            limits: Some(BTreeMap::from([(
                "nvidia.com/gpu".to_owned(),
                quantity("1"),
            )])),
            ..ResourceRequirements::default()
        };
        let filled = resources(Some(&given));
        let (requests, limits) = (filled.requests.unwrap(), filled.limits.unwrap());
        assert_eq!(limits["memory"], quantity("4Gi"));
        assert_eq!(limits["nvidia.com/gpu"], quantity("1"));
        for name in ["cpu", "memory", "ephemeral-storage"] {
            assert!(
                requests.contains_key(name) && limits.contains_key(name),
                "{name}"
            );
        }
    }
}

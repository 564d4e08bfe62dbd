//! The YAML documents of a file: `McpGroups` and the Secrets they name.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ramen_crds::McpGroup;
use ramen_group::yaml;
use serde::Deserialize;
use serde_json::Value;

use crate::up::group::Key;

/// The entries of a Secret.
pub(super) type Secret = BTreeMap<String, Vec<u8>>;

/// What a file holds.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) groups: Vec<McpGroup>,
    pub(super) secrets: BTreeMap<Key, Secret>,
    pub(super) remarks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretDocument {
    metadata: ObjectMeta,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
    #[serde(default)]
    string_data: Option<BTreeMap<String, String>>,
}

/// Namespace and name.
pub(super) fn key_of(metadata: &ObjectMeta) -> Key {
    let namespace = metadata
        .namespace
        .clone()
        .filter(|namespace| !namespace.is_empty());
    (
        namespace.unwrap_or_else(|| "default".to_owned()),
        metadata.name.clone().unwrap_or_default(),
    )
}

impl Documents {
    /// Reads all documents; the error names the document.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let documents = yaml::documents(text)?;
        let mut read = Self::default();
        for (n, document) in documents.into_iter().enumerate() {
            if document.is_null() {
                continue;
            }
            let of = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
            let (version, kind) = (of("apiVersion"), of("kind"));
            let name = document["metadata"]["name"]
                .as_str()
                .unwrap_or("without a name")
                .to_owned();
            let failed = |error: &dyn std::fmt::Display| {
                format!("document {} ({kind} {name}): {error}", n + 1)
            };
            match (version.as_str(), kind.as_str()) {
                ("ramen.dev/v1alpha1", "McpGroup") => {
                    check_namespace(&document).map_err(|error| failed(&error))?;
                    let unknown = ramen_crds::unknown_fields(&document["spec"])
                        .map_err(|error| failed(&error))?;
                    let group: McpGroup = yaml::typed(&document).map_err(|error| {
                        // What is missing is often there under a wrong name.
                        let also = unknown.iter().map(|field| format!("; {field}"));
                        failed(&format!("{error}{}", also.collect::<String>()))
                    })?;
                    let ignored = unknown.iter().map(|one| failed(&format!("ignored: {one}")));
                    read.remarks.extend(ignored);
                    read.groups.push(group);
                }
                ("v1", "Secret") => {
                    let (key, secret) = secret(&document).map_err(|error| failed(&error))?;
                    read.secrets.insert(key, secret);
                }
                (_, "McpGroup") => {
                    return Err(failed(&"the apiVersion must be ramen.dev/v1alpha1"));
                }
                _ => read
                    .remarks
                    .push(failed(&"ignored, it is neither a McpGroup nor a Secret")),
            }
        }
        Ok(read)
    }
}

/// Namespaces become names of folders.
fn check_namespace(document: &Value) -> Result<(), &'static str> {
    let namespace = document["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    let fits = namespace.len() <= 63
        && namespace
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        Ok(())
    } else {
        Err("the namespace is made of small letters, digits and `-`")
    }
}

fn secret(document: &Value) -> Result<(Key, Secret), String> {
    let SecretDocument {
        metadata,
        data,
        string_data,
    } = yaml::typed(document)?;
    let mut secret = Secret::new();
    for (key, value) in data.into_iter().flatten() {
        // The value itself is in no message.
        let value: String = value.split_whitespace().collect();
        let value = STANDARD
            .decode(value)
            .map_err(|_| format!("data.{key} is no base64"))?;
        secret.insert(key, value);
    }
    secret.extend(
        string_data
            .into_iter()
            .flatten()
            .map(|(key, value)| (key, value.into_bytes())),
    );
    let odd = |key: &&String| {
        key.is_empty()
            || key.len() > 253
            || key.starts_with("..")
            || key.as_str() == "."
            || !key
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    match secret.keys().find(odd) {
        Some(key) => Err(format!(
            "the key {key:?} is not made of letters, digits, `-`, `_` and `.`"
        )),
        None => Ok((key_of(&metadata), secret)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_secrets_cannot_leave_their_folder_and_values_are_in_no_message() {
        let parse = |entries: &str| {
            Documents::parse(&format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{entries}"
            ))
            .map(|d| d.secrets)
        };
        for bad in [
            "stringData: {../x: secret-value}",
            "stringData: {a/b: secret-value}",
            "data: {a: secret-value!}",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(!error.contains("secret-value"), "{error}");
        }
        let good = parse("stringData: {known_hosts: a}\ndata: {identity: |\n  YWJj\n  ZGVm\n}")
            .or_else(|_| parse("data: {identity: YWJj}"));
        assert!(good.unwrap()[&("default".to_owned(), "s".to_owned())].contains_key("identity"));
    }

    #[test]
    fn fields_that_are_not_known_are_told() {
        let text = "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {name: a}\nspec:\n  \
            source: {url: 'https://x/y.git', intervall: 1m, suspend: false, ref: {branch: main}}\n  \
            network: {allowedCIDRs: [10.0.0.0/8]}\n  zones: [{name: eu, replica: 2, nodeSelector: {a: b}}]\n  extra: 1\n";
        let read = Documents::parse(text).unwrap();
        let remarks = read.remarks.join("\n");
        for field in [
            "`spec.source.intervall`",
            "`spec.zones[0].replica`",
            "`spec.extra`",
        ] {
            assert!(remarks.contains(field), "{remarks}");
        }
        assert_eq!(read.remarks.len(), 3);
    }

    #[test]
    fn wrong_types_are_told_by_the_path_of_the_field() {
        for (spec, says) in [
            (
                "source: {url: [x]}, network: {allowedCIDRs: []}",
                "`spec.source.url` must be a text, not a list",
            ),
            (
                "source: {url: x, suspend: maybe}, network: {allowedCIDRs: []}",
                "`spec.source.suspend` must be true or false, not a text",
            ),
            (
                "source: {url: x}, network: {allowedCIDRs: 10.0.0.0/8}",
                "`spec.network.allowedCIDRs` must be a list, not a text",
            ),
            (
                "source: {url: x}, network: {allowedCIDRs: []}, history: -1",
                "`spec.history` must be a whole number from 0 to 4294967295, not -1",
            ),
            (
                "source: {url: x}, network: [[10.0.0.0/8]]",
                "`spec.network` must be a map, not a list",
            ),
            ("source: {}, network: {}", "`spec.source.url` is missing"),
        ] {
            let text = format!(
                "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
            );
            let error = Documents::parse(&text).err().unwrap();
            assert_eq!(error, format!("document 1 (McpGroup a): {says}"));
        }
    }

    #[test]
    fn a_misspelt_field_is_told_also_when_another_one_is_missing() {
        let text = "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {name: a}\nspec: {source: {ulr: x}, \
            network: {allowedCIDRs: []}}\n";
        let error = Documents::parse(text).err().unwrap();
        let told =
            "`spec.source.url` is missing; `spec.source.ulr` is not known; what can stand there: ";
        assert!(error.contains(told) && error.ends_with("`url`"), "{error}");
    }

    #[test]
    fn a_namespace_cannot_leave_the_state_directory() {
        let text = "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {name: a, namespace: ../../x}\nspec: {}\n";
        assert!(Documents::parse(text).is_err());
    }
}

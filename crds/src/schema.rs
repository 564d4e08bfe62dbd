//! The kind as it is given to the API server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::McpGroup;

/// Formats of integers that the API server does not know and `kubectl` warns of, with the bounds that
/// they stand for. Above 2^53 JSON numbers are not exact.
const BOUNDS: &[(&str, f64, f64)] = &[
    ("uint8", 0.0, 255.0),
    ("uint16", 0.0, 65_535.0),
    ("uint32", 0.0, 4_294_967_295.0),
    ("uint64", 0.0, 9_007_199_254_740_991.0),
    ("uint", 0.0, 9_007_199_254_740_991.0),
    ("int8", -128.0, 127.0),
    ("int16", -32_768.0, 32_767.0),
];

/// The definition of the kind: what the types say, in formats that every client knows.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = McpGroup::crd();
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            bound(schema);
        }
    }
    crd
}

fn bound(schema: &mut JSONSchemaProps) {
    let known = schema.format.as_deref();
    let bounds = BOUNDS.iter().find(|(format, ..)| Some(*format) == known);
    if let Some((_, least, most)) = bounds {
        schema.format = None;
        // Narrower bounds stay.
        schema.minimum = schema.minimum.or(Some(*least));
        schema.maximum = schema.maximum.or(Some(*most));
    }
    for inner in schema
        .properties
        .iter_mut()
        .flat_map(|all| all.values_mut())
    {
        bound(inner);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(inner)) => bound(inner),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(bound),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &mut schema.additional_properties {
        bound(inner);
    }
}

/// Of the spec alone.
static SPEC: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let schema = crd().spec.versions.pop().and_then(|version| version.schema);
    let root = schema.and_then(|schema| schema.open_api_v3_schema);
    let fields = root.and_then(|root| root.properties);
    fields
        .and_then(|mut fields| fields.remove("spec"))
        .expect("the kind is made with a schema of its spec")
});

/// A field of a written spec that the kind does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// Where it stands: `spec.source.ulr`.
    pub path: String,
    /// The fields that can stand there.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = self.known.iter().map(|one| format!("`{one}`")).collect();
        write!(
            f,
            "`{}` is not known; what can stand there: {}",
            self.path,
            known.join(", ")
        )
    }
}

/// The fields of a written spec that the kind does not have, which an API server drops or refuses. `Err` names a list
/// where a map belongs: the types take it for the fields in their order, which no API server does.
pub fn unknown_fields(spec: &Value) -> Result<Vec<UnknownField>, String> {
    let mut found = Vec::new();
    look("spec", spec, &SPEC, &mut found)?;
    Ok(found)
}

fn look(
    path: &str,
    given: &Value,
    schema: &JSONSchemaProps,
    found: &mut Vec<UnknownField>,
) -> Result<(), String> {
    let of_map = schema.type_.as_deref() == Some("object");
    match given {
        Value::Array(_) if of_map => return Err(format!("`{path}` must be a map, not a list")),
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
                for (n, item) in items.iter().enumerate() {
                    look(&format!("{path}[{n}]"), item, inner, found)?;
                }
            }
        }
        Value::Object(members) if of_map => {
            let any = match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(inner.as_ref()),
                _ => None,
            };
            let fields = schema.properties.as_ref();
            for (name, value) in members {
                let path = format!("{path}.{name}");
                match fields.and_then(|fields| fields.get(name)).or(any) {
                    Some(inner) => look(&path, value, inner, found)?,
                    None => found.push(UnknownField {
                        path,
                        known: fields
                            .into_iter()
                            .flat_map(BTreeMap::keys)
                            .cloned()
                            .collect(),
                    }),
                }
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_kind_does_not_have_is_found_wherever_it_stands() {
        let spec = json!({
            "source": {"ulr": "https://x/y.git", "suspend": false, "ref": {"branch": "main"}},
            "network": {"allowedCIDRs": []},
            "zones": [
                {"nodeSelector": {"any": "thing"}, "replica": false},
                {"resources": {"limits": {"cpu": "1", "nvidia.com/gpu": 1}, "limit": {}}},
            ],
        });
        let found = unknown_fields(&spec).unwrap();
        let mut paths: Vec<_> = found.iter().map(|one| one.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(
            paths,
            [
                "spec.source.ulr",
                "spec.zones[0].replica",
                "spec.zones[1].resources.limit"
            ]
        );
        let ulr = found.iter().find(|one| one.path == "spec.source.ulr");
        let told = ulr.unwrap().to_string();
        assert!(told.ends_with(", `timeout`, `url`"), "{told}");
    }

    #[test]
    fn a_list_is_no_map() {
        let error = unknown_fields(&json!({"network": [["10.0.0.0/8"]]})).unwrap_err();
        assert_eq!(error, "`spec.network` must be a map, not a list");
        assert_eq!(unknown_fields(&Value::Null), Ok(Vec::new()));
    }
}

//! The kind as it is given to the API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

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

//! Every field of the kind is documented, every string and list has a bound.

use serde_json::Value;

/// Types of Kubernetes itself, which are as they are.
const FOREIGN: &[&str] = &["tolerations", "resources", "conditions"];

fn walk(path: &str, name: &str, schema: &Value, faults: &mut Vec<String>) {
    // Resources of an access rule are a list, ours, and those of a container an object.
    let ours = name == "resources" && schema["type"] == "array";
    if FOREIGN.contains(&name) && !ours {
        return;
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    let lacks = |key: &str| schema.get(key).is_none();
    // `kubectl` warns of every other format of a number.
    let format = schema["format"].as_str();
    if kind == "integer" && !matches!(format, None | Some("int32" | "int64")) {
        faults.push(format!("{path}: format {format:?}"));
    }
    match kind {
        "string" if lacks("maxLength") && lacks("enum") => {
            faults.push(format!("{path}: maxLength"));
        }
        "array" => {
            if lacks("maxItems") {
                faults.push(format!("{path}: maxItems"));
            }
            walk(&format!("{path}[]"), "", &schema["items"], faults);
        }
        "integer" if lacks("maximum") && schema["format"] != "int64" => {
            faults.push(format!("{path}: maximum"));
        }
        "object" if !lacks("additionalProperties") && lacks("maxProperties") => {
            faults.push(format!("{path}: maxProperties"));
        }
        _ => {}
    }
    if schema["additionalProperties"].is_object() {
        walk(
            &format!("{path}.*"),
            "",
            &schema["additionalProperties"],
            faults,
        );
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if inner["description"].as_str().is_none_or(str::is_empty) {
            faults.push(format!("{path}: description"));
        }
        walk(&path, name, inner, faults);
    }
}

fn crd() -> Value {
    serde_json::to_value(ramen_crds::crd()).expect("a CRD is JSON")
}

#[test]
fn every_field_is_documented_and_bounded() {
    let crd = crd();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut faults = Vec::new();
    for part in ["spec", "status"] {
        walk(part, part, &schema["properties"][part], &mut faults);
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_kind_has_the_names_that_people_type() {
    let crd = crd();
    assert_eq!(crd["metadata"]["name"], "mcpgroups.ramen.dev");
    assert_eq!(
        crd["spec"]["names"]["shortNames"],
        serde_json::json!(["rmg"])
    );
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!(version["subresources"]["status"], serde_json::json!({}));
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let names: Vec<_> = columns
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Ready", "Reason", "Tools", "Errors", "Revision", "Replicas", "Age"
        ]
    );
}

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only read from text")]
struct Spec {
    name: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    ratio: f64,
    #[serde(default)]
    on: bool,
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    zones: Vec<Zone>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Open,
    Closed,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only read from text")]
struct Zone {
    replicas: u32,
}

/// A fault, and what is said of it by both readers.
const FAULTS: &[(&str, &str)] = &[
    ("port: 1", "`name` is missing"),
    (
        "{name: a, port: many}",
        "`port` must be a whole number from 0 to 65535, not a text",
    ),
    (
        "{name: a, port: 70000}",
        "`port` must be a whole number from 0 to 65535, not 70000",
    ),
    (
        "{name: a, port: -1}",
        "`port` must be a whole number from 0 to 65535, not -1",
    ),
    (
        "{name: a, ratio: [1]}",
        "`ratio` must be a number, not a list",
    ),
    (
        "{name: a, ratio: x}",
        "`ratio` must be a number, not a text",
    ),
    (
        "{name: a, on: maybe}",
        "`on` must be true or false, not a text",
    ),
    ("{name: [a]}", "`name` must be a text, not a list"),
    ("{name: {b: c}}", "`name` must be a text, not a map"),
    (
        "{name: a, mode: ajar}",
        "`mode` must be one of `open`, `closed`, not `ajar`",
    ),
    ("{name: a, zones: eu}", "`zones` must be a list, not a text"),
    (
        "{name: a, zones: {eu: 1}}",
        "`zones` must be a list, not a map",
    ),
    (
        "{name: a, zones: [{replicas: 1}, eu]}",
        "`zones[1]` must be a map, not a text",
    ),
    ("{name: a, zones: [{}]}", "`zones[0].replicas` is missing"),
    (
        "{name: a, zones: [{replicas: two}]}",
        "`zones[0].replicas` must be a whole number from 0 to 4294967295, not a text",
    ),
    (
        "{name: a, labels: [x]}",
        "`labels` must be a map, not a list",
    ),
    (
        "{name: a, labels: {x: [y]}}",
        "`labels.x` must be a text, not a list",
    ),
];

/// Words of a program instead of a person.
const JARGON: &[&str] = &[
    "struct",
    "u16",
    "u32",
    "f64",
    "Option",
    "sequence",
    "scalar",
    "invalid type",
    "Spec",
    "Zone",
];

#[test]
fn a_wrong_type_is_told_by_path_by_what_is_there_and_by_what_belongs_there() {
    for (text, says) in FAULTS {
        let finding = read::<Spec>(text.as_bytes(), Reason::TestsInvalid).unwrap_err();
        assert_eq!(finding.message, *says, "{text}");
        assert!(finding.line.is_some(), "{text}");
        let document: Value = serde_saphyr::from_str(text).unwrap();
        assert_eq!(typed::<Spec>(&document).unwrap_err(), *says, "{text}");
        assert!(!JARGON.iter().any(|word| says.contains(word)), "{says}");
    }
}

#[test]
fn a_file_of_another_form_is_told_as_a_whole() {
    let finding = read::<Spec>(b"- a\n", Reason::TestsInvalid).unwrap_err();
    assert_eq!(finding.message, "the file must be a map, not a list");
}

#[test]
fn a_field_that_does_not_belong_is_named_with_those_that_do() {
    for said in [
        read::<Spec>(b"{name: a, zone: []}", Reason::TestsInvalid)
            .unwrap_err()
            .message,
        typed::<Spec>(&json!({"name": "a", "zone": []})).unwrap_err(),
    ] {
        assert!(
            said.starts_with("`zone` is not known; what can stand there: `name`, `port`"),
            "{said}"
        );
    }
}

#[test]
fn what_is_no_yaml_has_its_place_and_nothing_of_the_reader() {
    for (text, says) in [
        ("name: a\nname: b\n", "the key `name` is there twice"),
        ("name: [a\n", "no good YAML"),
        ("name: \"a\n", "no good YAML"),
        ("name: *nobody\n", "no good YAML"),
    ] {
        let finding = read::<Spec>(text.as_bytes(), Reason::TestsInvalid).unwrap_err();
        assert!(
            finding.message.starts_with(says),
            "{text}: {}",
            finding.message
        );
        assert!(finding.line.is_some(), "{text}");
        let error = documents(text).unwrap_err();
        assert!(error.starts_with("line "), "{error}");
        for word in ["Policy", "Options", "serde"] {
            assert!(
                !error.contains(word) && !finding.message.contains(word),
                "{error}"
            );
        }
    }
}

#[test]
fn a_text_or_number_of_a_document_is_not_quoted() {
    let document = json!({"name": "a", "labels": {"x": ["s3cr3t", 4711]}, "port": "s3cr3t"});
    let said = typed::<Spec>(&document).unwrap_err();
    assert!(!said.contains("s3cr3t") && !said.contains("4711"), "{said}");
}

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn parse(text: &str) -> Result<(Descriptor, Vec<Finding>), Vec<Finding>> {
    parse_descriptor(text.as_bytes(), None)
}

fn schema() -> jsonschema::Validator {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/proto.schema.json"
    );
    let text = std::fs::read_to_string(path).unwrap();
    jsonschema::draft202012::new(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// The schema refuses what the code refuses, but for the few rules that it cannot express.
fn agree(schema: &jsonschema::Validator, value: &Value) -> Result<(), String> {
    let (errors, expressible) = judge(&value.to_string());
    let valid = schema.is_valid(value);
    if valid && expressible > 0 {
        return Err(format!(
            "only the code refuses {value}: {:?}",
            parse(&value.to_string())
        ));
    }
    if !valid && errors == 0 {
        let why: Vec<_> = schema.iter_errors(value).map(|e| e.to_string()).collect();
        return Err(format!("only the schema refuses {value}: {why:?}"));
    }
    Ok(())
}

const CALCULATOR: &str = r#"{
  "type": "tool",
  "name": "demo_calculator_tool",
  "description": "Add, subtract, multiply or divide two numbers.",
  "callable": "calculator_func",
  "input": {
    "var1": {"type": "number", "description": "first operand"},
    "var2": {"type": "number", "description": "second operand"},
    "func": {"enum": ["add", "subtract", "multiply", "divide"], "description": "operation"}
  },
  "output": {"type": "number"},
  "error": {"type": "string"}
}"#;

#[test]
fn the_seeds_calculator_gives_the_schema_that_the_seed_says() {
    let (descriptor, warnings) = parse(CALCULATOR).unwrap();
    assert_eq!(warnings, []);
    let listed: Value = serde_json::from_str(descriptor.input.json().get()).unwrap();
    assert_eq!(
        listed,
        json!({
            "type": "object",
            "properties": {
                "var1": {"type": "number", "description": "first operand"},
                "var2": {"type": "number", "description": "second operand"},
                "func": {
                    "type": "string",
                    "enum": ["add", "subtract", "multiply", "divide"],
                    "description": "operation"
                }
            },
            "required": ["var1", "var2", "func"],
            "additionalProperties": false
        })
    );
    let output = descriptor.output.unwrap();
    assert_eq!(
        (output.json().get(), output.is_object()),
        (r#"{"type":"number"}"#, false)
    );
    assert_eq!(descriptor.input.param("func").unwrap().values.len(), 4);
}

#[test]
fn pkg08_marks_and_line_ends_load_and_other_slips_have_a_place() {
    let crlf = format!("\u{feff}{}", CALCULATOR.replace('\n', "\r\n"));
    assert!(parse(&crlf).is_ok());
    for (text, place, words) in [
        (
            "{\n  \"type\": \"tool\",\n}",
            (3, 1),
            "the comma before is one too many",
        ),
        ("{\n  // c\n  \"type\": 1}", (2, 3), "comments are not JSON"),
        ("{\"a\": 1, # c\n}", (1, 10), "comments are not JSON"),
        (
            "{\"callable\": \"a\",\n \"é\": 1, \"callable\": \"b\"}",
            (2, 10),
            "a member is given twice",
        ),
        ("{\"a\": NaN}", (1, 7), "`NaN` and `Infinity` are not JSON"),
        ("{'a': 1}", (1, 2), "strings take double quotes"),
        (
            "{\"a\": True}",
            (1, 7),
            "write `true` and `false` in small letters",
        ),
        ("{\"a\": 01}", (1, 7), "a number starts with a zero"),
        (
            "{\"a\": \"x\ny\"}",
            (1, 9),
            "a control character in a string",
        ),
        ("", (1, 1), "the text ends too early"),
        ("{} {}", (1, 4), "the text goes on after the value"),
    ] {
        let findings = parse(text).unwrap_err();
        let finding = &findings[0];
        assert_eq!(finding.reason, Reason::DescriptorInvalid);
        assert_eq!(finding.message, format!("not JSON: {words}"), "{text}");
        assert_eq!(
            (finding.line, finding.column),
            (Some(place.0), Some(place.1)),
            "{text}"
        );
    }
    let findings = parse_descriptor(b"{\n\"a\": \"\xff\"}", None).unwrap_err();
    assert_eq!((findings[0].line, findings[0].column), (Some(2), Some(7)));
}

#[test]
fn every_fault_of_a_descriptor_is_listed_with_its_place() {
    let text = r#"{
  "type": "tool",
  "name": "x y",
  "callable": "not-a-name",
  "input": {
    "a": {"type": "text"},
    "b": {"enum": [1]},
    "c": {"type": "integer", "default": "x"}
  },
  "timeout_seconds": 0
}"#;
    let findings = parse(text).unwrap_err();
    let places: Vec<_> = findings
        .iter()
        .map(|f| (f.line.unwrap(), f.reason))
        .collect();
    assert_eq!(
        places,
        [
            (3, Reason::NameInvalid),
            (6, Reason::DescriptorInvalid),
            (7, Reason::DescriptorInvalid),
            (8, Reason::DescriptorInvalid),
        ],
        "{findings:#?}"
    );
    let repaired = text.replace("x y", "x");
    let lines: Vec<_> = parse(&repaired)
        .unwrap_err()
        .iter()
        .map(|f| f.line.unwrap())
        .collect();
    assert_eq!(lines, [6, 7, 8, 4, 10]);
}

#[test]
fn what_nobody_reads_is_remarked_on() {
    let text = r#"{"type":"tool","name":"x","callable":"f","skill":"y","$schema":"z","x-own":1,
        "input":{"a":{"type":"object","patternProperties":{},"colour":1}}}"#;
    let (_, warnings) = parse(text).unwrap();
    let reasons: Vec<_> = warnings.iter().map(|w| w.reason).collect();
    assert_eq!(
        reasons,
        [
            Reason::FieldUnknown,
            Reason::FieldUnknown,
            Reason::FieldUnknown,
            Reason::DescriptionMissing
        ]
    );
}

#[test]
fn headers_are_unique_tokens_on_values_that_fit_a_header() {
    let tool = |input: &str| {
        parse(&format!(
            r#"{{"type":"tool","name":"x","callable":"f","input":{input}}}"#
        ))
    };
    let good = tool(r#"{"a":{"type":"string","x-mcp-header":"Region"}}"#).unwrap();
    assert_eq!(good.0.input.params()[0].header.as_deref(), Some("Region"));
    for bad in [
        r#"{"a":{"type":"number","x-mcp-header":"R"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":""}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"a b"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"Trace-Bin"}}"#,
        r#"{"a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"x-bin"}}}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"R"},"b":{"type":"string","x-mcp-header":"r"}}"#,
        r#"{"a":{"type":"array","items":{"type":"string","x-mcp-header":"R"}}}"#,
        r#"{"a":{"type":"object","properties":{"b":{"type":"number","x-mcp-header":"R"}}}}"#,
    ] {
        assert!(tool(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_schema_and_the_code_agree_on_the_fixtures() {
    let schema = schema();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
    let mut folders = vec![std::path::PathBuf::from(fixtures)];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.parent().and_then(|p| p.file_name()) == path.file_stem()
                && let Ok(bytes) = std::fs::read(&path)
                && let Ok(text) = json::decode(&bytes)
                && json::parse(text).is_ok()
                && let Ok(value) = serde_json::from_str::<Value>(text)
            {
                agree(&schema, &value).unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "only {seen} descriptors were found");
}

/// Values that are right or wrong for one field or another.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..5).prop_map(Value::from),
        prop::sample::select(vec![0.5, 2.0, 3600.5, -0.0, 1e300]).prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "x",
            "a b",
            "tool",
            "resource",
            "string",
            "number",
            "integer",
            "boolean",
            "array",
            "object",
            "null",
            "SKILL.md",
            "../x",
            "demo://readme",
            "text/html",
            "https://x/y",
            "http://x",
            "light",
            "user",
            "#",
            "#/$defs/a",
            "other.json#",
            "[a-z]+",
            "R",
            "é",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keyword(), inner.clone()), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            prop::collection::vec((keyword(), inner), 0..3).prop_map(|members| {
                let mut object: serde_json::Map<_, _> = members.into_iter().collect();
                object.insert("type".to_owned(), "string".into());
                Value::Object(object)
            }),
        ]
    })
}

fn keyword() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "type",
        "enum",
        "const",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "multipleOf",
        "items",
        "prefixItems",
        "minItems",
        "uniqueItems",
        "properties",
        "required",
        "additionalProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "$ref",
        "$defs",
        "title",
        "description",
        "default",
        "format",
        "x-mcp-header",
        "unknown",
        "a",
        "b c",
    ])
    .prop_map(str::to_owned)
}

fn descriptor() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec![
        "type",
        "name",
        "title",
        "description",
        "callable",
        "input",
        "output",
        "error",
        "uri",
        "mime_type",
        "skill",
        "settings",
        "annotations",
        "icons",
        "timeout_seconds",
        "unknown",
    ]);
    let kind = prop::sample::select(vec!["tool", "resource", "prompt"]);
    let input = prop::collection::vec(
        (prop_oneof![keyword(), Just("p".to_owned())], value()),
        0..3,
    );
    let hint = prop::sample::select(vec![
        "title",
        "readOnlyHint",
        "audience",
        "priority",
        "lastModified",
        "src",
        "sizes",
        "theme",
    ])
    .prop_map(str::to_owned);
    let hints = prop::collection::vec((hint, value()), 0..3);
    let changes = prop::collection::vec((field, value()), 0..3);
    (kind, input, hints, changes, any::<bool>(), any::<bool>()).prop_map(
        |(kind, input, hints, changes, icons, with_input)| {
            let mut object = serde_json::Map::new();
            object.insert("type".to_owned(), kind.into());
            object.insert("name".to_owned(), "x".into());
            if kind != "prompt" {
                object.insert("callable".to_owned(), "f".into());
            }
            if kind == "resource" {
                object.insert("uri".to_owned(), "demo://x".into());
            }
            if with_input {
                object.insert(
                    "input".to_owned(),
                    Value::Object(input.into_iter().collect()),
                );
            }
            let hints = Value::Object(hints.into_iter().collect());
            if icons {
                object.insert("icons".to_owned(), json!([hints]));
            } else {
                object.insert("annotations".to_owned(), hints);
            }
            for (field, value) in changes {
                object.insert(field.to_owned(), value);
            }
            Value::Object(object)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_schema_and_the_code_agree_on_any_descriptor(value in descriptor()) {
        thread_local!(static SCHEMA: jsonschema::Validator = schema());
        SCHEMA.with(|schema| agree(schema, &value)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        let _ = parse(&text);
        let _ = parse_descriptor(&bytes, Some((PackageKind::Prompt, "x")));
    }

    #[test]
    fn the_reader_takes_what_serde_json_takes(value in value()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let node = json::parse(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&node.minified()).unwrap(), value.clone());
        }
    }

    #[test]
    fn the_reader_and_serde_json_refuse_the_same_texts(
        text in r#"[\[\]{}",:\\a-eu0-9.+\- \n-]{0,16}"#
    ) {
        let ours = json::parse(&text);
        match serde_json::from_str::<Value>(&text) {
            Ok(_) => if let Err(fault) = ours {
                prop_assert_eq!(fault.message, "a member is given twice");
            },
            Err(_) => prop_assert!(ours.is_err(), "{}", text),
        }
    }
}

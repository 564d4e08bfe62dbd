//! The compiled check against an independent implementation of JSON Schema.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn compile(schema: &Value) -> Result<OutputSchema, Vec<String>> {
    OutputSchema::parse(&schema.to_string())
}

#[test]
fn results_are_held_to_the_declared_output() {
    let schema = compile(&json!({
        "type": "object",
        "properties": {"hits": {"type": "array", "items": {"$ref": "#/$defs/hit"}}},
        "required": ["hits"],
        "$defs": {"hit": {"type": "object", "properties": {"next": {"$ref": "#/$defs/hit"}, "n": {"type": "integer"}}, "required": ["n"]}}
    }))
    .unwrap();
    assert!(schema.is_object());
    assert_eq!(
        schema.check(r#"{"hits":[{"n":1,"next":{"n":2.0}}],"more":true}"#),
        Ok(())
    );
    let fault = schema
        .check(r#"{"hits":[{"n":1,"next":{"n":"x"}}]}"#)
        .unwrap_err();
    assert_eq!(fault.to_string(), "`hits[0].next.n` must be an integer");
    assert_eq!(
        schema.check("[]").unwrap_err().to_string(),
        "must be an object"
    );
    assert!(schema.check("{").is_err());
}

#[test]
fn a_schema_that_refers_to_itself_without_end_gives_an_error() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ] {
        let schema = compile(&schema).unwrap();
        assert!(schema.check("1").is_err());
    }
}

#[test]
fn branches_that_multiply_come_to_an_end() {
    let node = json!({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]}});
    let schema = compile(&node).unwrap();
    let deep = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    assert!(schema.check(&deep).is_err());
}

#[test]
fn enum_and_const_hold_both_in_either_order() {
    for (schema, good, bad) in [
        (json!({"enum": [1, "a"], "const": "a"}), "\"a\"", "1"),
        (json!({"const": 1, "enum": [1.0, "a"]}), "1", "\"a\""),
    ] {
        let schema = compile(&schema).unwrap();
        assert_eq!(schema.check(good), Ok(()));
        assert!(schema.check(bad).is_err());
    }
    let nothing = compile(&json!({"enum": [0], "const": []})).unwrap();
    assert!(nothing.check("[]").is_err() && nothing.check("0").is_err());
}

fn keyword() -> impl Strategy<Value = (String, Value)> {
    let types = vec![
        "string", "number", "integer", "boolean", "array", "object", "null",
    ];
    let named = |name: &str, value: BoxedStrategy<Value>| {
        let name = name.to_owned();
        value.prop_map(move |value| (name.clone(), value)).boxed()
    };
    let size = || (0..4u32).prop_map(Value::from).boxed();
    let number = || prop_oneof![(-3..4i32).prop_map(Value::from), Just(json!(0.5))].boxed();
    prop_oneof![
        4 => named("type", prop::sample::select(types.clone()).prop_map(Value::from).boxed()),
        1 => named("type", prop::sample::subsequence(types, 1..3).prop_map(Value::from).boxed()),
        1 => named("enum", prop::collection::hash_set(0..5i32, 1..3)
            .prop_map(|set| set.into_iter().map(Value::from).collect()).boxed()),
        1 => named("enum", prop::collection::hash_set("[ab]", 1..3)
            .prop_map(|set| set.into_iter().map(Value::from).collect()).boxed()),
        1 => named("const", instance().boxed()),
        1 => named("minLength", size()),
        1 => named("maxLength", size()),
        1 => named("pattern", prop::sample::select(vec!["^a", "b$", r"\d", "[^a]"])
            .prop_map(Value::from).boxed()),
        1 => named("minimum", number()),
        1 => named("maximum", number()),
        1 => named("exclusiveMinimum", number()),
        1 => named("exclusiveMaximum", number()),
        1 => named("multipleOf", prop_oneof![Just(json!(2)), Just(json!(0.5))].boxed()),
        1 => named("minItems", size()),
        1 => named("maxItems", size()),
        1 => named("uniqueItems", any::<bool>().prop_map(Value::from).boxed()),
        1 => named("minProperties", size()),
        1 => named("maxProperties", size()),
        1 => named("required", prop::sample::subsequence(vec!["a", "b", "c"], 0..3)
            .prop_map(Value::from).boxed()),
        1 => named("additionalProperties", any::<bool>().prop_map(Value::from).boxed()),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => any::<bool>().prop_map(Value::from),
        6 => prop::collection::vec(keyword(), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect())),
    ];
    leaf.prop_recursive(3, 20, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3)
            .prop_map(Value::from)
            .boxed();
        let one = inner.clone().boxed();
        let named = prop::collection::hash_map("[abc]", inner, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed();
        let member = prop_oneof![
            ("allOf|anyOf|oneOf|prefixItems", list),
            ("items|not|additionalProperties", one),
            ("properties", named),
        ];
        (
            prop::collection::vec(member, 1..3),
            prop::collection::vec(keyword(), 0..3),
        )
            .prop_map(|(members, keywords)| {
                Value::Object(members.into_iter().chain(keywords).collect())
            })
    })
}

fn instance() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..5i32).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1.0, 2.5, -1.0]).prop_map(Value::from),
        "[ab1é]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[abcd]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_are_those_of_another_implementation(schema in schema(), value in instance()) {
        let ours = compile(&schema).map_err(|problems| TestCaseError::fail(problems.join("; ")))?;
        let theirs = jsonschema::draft202012::new(&schema).unwrap();
        let verdict = ours.check(&value.to_string());
        prop_assert_eq!(verdict.is_ok(), theirs.is_valid(&value), "{:?}", verdict);
    }
}

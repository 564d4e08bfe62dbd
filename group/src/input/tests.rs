use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::json;

fn input(text: &str) -> InputSchema {
    let node = json::parse(text).unwrap();
    let mut problems = Vec::new();
    let schema = InputSchema::compile(Some(&node), &mut problems);
    assert!(
        problems.iter().all(|problem| !problem.error),
        "{problems:?}"
    );
    schema
}

fn fault(schema: &InputSchema, arguments: &str) -> String {
    schema.check(arguments).unwrap_err().to_string()
}

fn calculator() -> InputSchema {
    input(
        r#"{"var1":{"type":"number"},"var2":{"type":"number"},
            "func":{"enum":["add","subtract","multiply","divide"]}}"#,
    )
}

#[test]
fn a_whole_schema_is_one_error_that_says_what_to_write() {
    let problems = |text: &str| {
        let node = json::parse(text).unwrap();
        let mut problems = Vec::new();
        InputSchema::compile(Some(&node), &mut problems);
        let messages = problems.into_iter().filter(|problem| problem.error);
        messages.map(|problem| problem.message).collect::<Vec<_>>()
    };
    for (text, says) in [
        (
            r#"{"type":"object","properties":{"city":{"type":"string"},"n":{}},"required":["city"]}"#,
            r#"write `"input": {"city": {…}}`"#,
        ),
        (
            r#"{"properties":{"type":{"type":"string"}},"additionalProperties":false}"#,
            r#"write `"input": {"type": {…}}`"#,
        ),
        (
            r#"{"type":"object"}"#,
            r#"`"input": {}` is a function without parameters"#,
        ),
        (
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","properties":{}}"#,
            r#"`"input": {}` is a function without parameters"#,
        ),
    ] {
        let messages = problems(text);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains(says), "{messages:?}");
    }
    // Parameters with these names are parameters.
    let named =
        r#"{"type":{"type":"string"},"properties":{"type":"object"},"required":{"enum":["a"]}}"#;
    assert_eq!(problems(named), [""; 0]);
    assert_eq!(input(named).params().len(), 3);
}

#[test]
fn arguments_that_fit_pass_untouched() {
    let schema = calculator();
    for text in [
        r#"{"var1":1,"var2":2,"func":"add"}"#,
        r#" { "func" : "add" , "var2" : -2.5e3 , "var1" : 0 } "#,
        r#"{"var1":1180591620717411303424,"var2":5.0,"func":"\u0061dd"}"#,
    ] {
        assert_eq!(schema.check(text), Ok(None), "{text}");
    }
}

#[test]
fn env17_an_extra_argument_is_refused_by_name() {
    let text = r#"{"var1":1,"var2":2,"func":"add","round":2}"#;
    assert_eq!(
        fault(&calculator(), text),
        "argument `round` is not known here"
    );
}

#[test]
fn every_wrong_argument_is_named_and_no_value_is_quoted() {
    let text = r#"{"var1":"s3cr3t","func":"s3cr3t"}"#;
    assert_eq!(
        fault(&calculator(), text),
        "argument `var1` must be a number; argument `func` must be one of: add, subtract, \
         multiply, divide; argument `var2` is missing"
    );
}

#[test]
fn nothing_is_coerced() {
    let schema = input(
        r#"{"n":{"type":"number"},"i":{"type":"integer"},"s":{"type":"string"},
            "b":{"type":"boolean"},"a":{"type":"array"},"o":{"type":"object"}}"#,
    );
    let good = r#"{"n":1.5,"i":1,"s":"","b":true,"a":[1,{}],"o":{"x":null}}"#;
    assert_eq!(schema.check(good), Ok(None));
    let good: Value = serde_json::from_str(good).unwrap();
    for (name, wrong) in [
        ("n", json!("5")),
        ("n", json!(true)),
        ("n", json!(null)),
        ("i", json!(true)),
        ("i", json!("1")),
        ("i", json!(5.5)),
        ("s", json!(1)),
        ("s", json!(null)),
        ("b", json!(0)),
        ("b", json!("true")),
        ("a", json!("[]")),
        ("a", json!({})),
        ("o", json!([])),
        ("o", json!("{}")),
    ] {
        let mut arguments = good.clone();
        arguments[name] = wrong;
        let text = fault(&schema, &arguments.to_string());
        assert!(
            text.starts_with(&format!("argument `{name}` must be a")),
            "{text}"
        );
    }
}

#[test]
fn env19_an_integer_written_as_a_float_becomes_an_integer() {
    let schema =
        input(r#"{"i":{"type":"integer"},"rest":{"type":"array","items":{"type":"integer"}}}"#);
    let text = r#"{"i": 5.0, "rest": [1, 2.0, 1e2, -0.0]}"#;
    let rewritten = schema.check(text).unwrap().unwrap();
    assert_eq!(rewritten, r#"{"i": 5, "rest": [1, 2, 100, 0]}"#);
    let exact = r#"{"i": 9007199254740993.0, "rest": []}"#;
    let rewritten = schema.check(exact).unwrap().unwrap();
    assert_eq!(rewritten, r#"{"i": 9007199254740993, "rest": []}"#);
    assert_eq!(
        fault(&schema, r#"{"i":5.5,"rest":[]}"#),
        "argument `i` must be an integer"
    );
    assert_eq!(
        fault(&schema, r#"{"i":true,"rest":[]}"#),
        "argument `i` must be an integer"
    );
    assert_eq!(
        fault(&schema, r#"{"i":1,"rest":[0.5]}"#),
        "argument `rest[0]` must be an integer"
    );
}

#[test]
fn env20_env11_numbers_that_python_cannot_hold_are_refused() {
    let schema = calculator();
    for number in ["1e400", "-1e400", &"1".repeat(5000)] {
        let text = format!(r#"{{"var1":{number},"var2":1,"func":"add"}}"#);
        assert!(
            matches!(schema.check(&text), Err(ArgFaults::Malformed(_))),
            "{number}"
        );
    }
    let long = "9".repeat(4300);
    let text = format!(r#"{{"var1":{long},"var2":1e-400,"func":"add"}}"#);
    assert_eq!(schema.check(&text), Ok(None));
}

#[test]
fn env15_a_lone_surrogate_is_refused_and_a_pair_is_one_character() {
    let schema = input(r#"{"s":{"type":"string","maxLength":1}}"#);
    for text in [
        r#"{"s":"\ud800"}"#,
        r#"{"s":"\udc00"}"#,
        r#"{"s":"\ud800x"}"#,
        r#"{"\ud800":1}"#,
    ] {
        assert!(
            matches!(schema.check(text), Err(ArgFaults::Malformed(_))),
            "{text}"
        );
    }
    assert_eq!(schema.check(r#"{"s":"\ud83d\ude00"}"#), Ok(None));
}

#[test]
fn env21_arguments_are_an_object() {
    let schema = InputSchema::default();
    assert_eq!(schema.check("{}"), Ok(None));
    for text in ["[]", "\"x\"", "1", "null"] {
        assert_eq!(schema.check(text), Err(ArgFaults::NotAnObject), "{text}");
    }
    assert_eq!(
        schema.json().get(),
        r#"{"type":"object","properties":{},"additionalProperties":false}"#
    );
}

#[test]
fn env12_deep_nesting_ends_in_an_error() {
    let schema = input(r#"{"a":{"type":"array"}}"#);
    let text = format!(r#"{{"a":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    assert!(matches!(schema.check(&text), Err(ArgFaults::Malformed(_))));
}

#[test]
fn an_argument_given_twice_is_refused() {
    let text = r#"{"var1":1,"var1":2,"var2":2,"func":"add"}"#;
    assert_eq!(fault(&calculator(), text), "argument `var1` is given twice");
    let hidden = r#"{"var1":1,"v\u0061r1":2,"var2":2,"func":"add"}"#;
    assert_eq!(
        fault(&calculator(), hidden),
        "argument `var1` is given twice"
    );
}

#[test]
fn defaults_are_filled_in() {
    let schema = input(
        r#"{"q":{"type":"string"},"n":{"type":"integer","default":5.0},
            "t":{"type":"array","default":[1,"a"]}}"#,
    );
    let check = |text| schema.check(text).unwrap();
    assert_eq!(
        check(r#"{"q":"x"}"#).unwrap(),
        r#"{"q":"x","n":5,"t":[1,"a"]}"#
    );
    assert_eq!(
        check(r#"{"t":[],"q":"x"}"#).unwrap(),
        r#"{"t":[],"q":"x","n":5}"#
    );
    assert_eq!(check(r#"{"q":"x","n":1,"t":[]}"#), None);
    let all = input(r#"{"n":{"type":"integer","default":1},"m":{"type":"integer","default":2}}"#);
    assert_eq!(all.check("{ }").unwrap().unwrap(), r#"{ "n":1,"m":2}"#);
    let listed: Value = serde_json::from_str(schema.json().get()).unwrap();
    assert_eq!(listed["required"], json!(["q"]));
    assert_eq!(listed["properties"]["n"]["default"], json!(5.0));
}

#[test]
fn limits_are_checked_and_named() {
    let schema = input(
        r#"{"s":{"type":"string","minLength":2,"maxLength":3,"pattern":"^\\w+$","default":"ab"},
            "n":{"type":"number","minimum":0,"exclusiveMaximum":10,"multipleOf":0.1,"default":1},
            "e":{"type":"integer","enum":[1,2],"default":1},
            "t":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":2,
                 "uniqueItems":true,"default":["a"]},
            "o":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],
                 "additionalProperties":false,"default":{"a":1}}}"#,
    );
    for (text, message) in [
        (
            r#"{"s":"a"}"#,
            "argument `s` must have at least 2 characters",
        ),
        (
            r#"{"s":"abcd"}"#,
            "argument `s` must have at most 3 characters",
        ),
        (
            r#"{"s":"a b"}"#,
            r"argument `s` must match the pattern ^\w+$",
        ),
        (r#"{"n":-0.1}"#, "argument `n` must be at least 0"),
        (r#"{"n":10}"#, "argument `n` must be less than 10"),
        (r#"{"n":0.25}"#, "argument `n` must be a multiple of 0.1"),
        (
            r#"{"e":3}"#,
            "argument `e` is not one of the allowed values",
        ),
        (r#"{"t":[]}"#, "argument `t` must have at least 1 items"),
        (
            r#"{"t":["a","b","c"]}"#,
            "argument `t` must have at most 2 items",
        ),
        (r#"{"t":["a","\u0061"]}"#, "argument `t[1]` is there twice"),
        (r#"{"o":{}}"#, "argument `o.a` is missing"),
        (r#"{"o":{"a":1,"b":2}}"#, "argument `o.b` is not known here"),
    ] {
        assert_eq!(fault(&schema, text), message);
    }
    for text in [
        r#"{"n":0.3}"#,
        r#"{"n":9.9}"#,
        r#"{"e":2.0}"#,
        r#"{"s":"abc"}"#,
    ] {
        assert!(schema.check(text).is_ok(), "{text}");
    }
}

#[test]
fn many_parameters_are_told_apart() {
    let members: Vec<String> = (0..100)
        .map(|n| format!(r#""p{n}":{{"type":"integer"}}"#))
        .collect();
    let schema = input(&format!("{{{}}}", members.join(",")));
    let arguments: Vec<String> = (0..100).rev().map(|n| format!(r#""p{n}":{n}"#)).collect();
    assert_eq!(
        schema.check(&format!("{{{}}}", arguments.join(","))),
        Ok(None)
    );
    let lacking = format!("{{{}}}", arguments[1..].join(","));
    assert_eq!(fault(&schema, &lacking), "argument `p99` is missing");
}

proptest! {
    #[test]
    fn no_text_makes_the_check_panic(text in any::<String>(), inner in ".{0,30}") {
        let schema = calculator();
        let _ = schema.check(&text);
        let _ = schema.check(&format!("{{\"var1\":{inner}}}"));
        let _ = schema.check(&format!("{{\"func\":\"{inner}\"}}"));
    }

    #[test]
    fn what_passes_is_the_same_object_for_python(
        a in any::<i64>(), b in -1e15..1e15f64, whole in -100_000i32..100_000
    ) {
        let schema = input(
            r#"{"a":{"type":"integer"},"b":{"type":"number"},"c":{"type":"integer"}}"#,
        );
        let text = format!(r#"{{"a":{a},"b":{b:?},"c":{whole}.0}}"#);
        let passed = schema.check(&text).unwrap().unwrap();
        prop_assert_eq!(passed, format!(r#"{{"a":{a},"b":{b:?},"c":{whole}}}"#));
    }
}

use proptest::prelude::*;

use super::*;

fn table(group: &str, pairs: &[(&str, &str)]) -> SecretTable {
    SecretTable::from_env(
        group,
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn substitute(table: &SecretTable, json: &str) -> Result<String, SecretFault> {
    table.substitute(Cow::Borrowed(json)).map(Cow::into_owned)
}

#[test]
fn names_are_upper_case_with_underscores() {
    assert_eq!(
        env_name("my-team.x", "api-key.v1"),
        "RAMEN_SECRET_MY_TEAM_X__API_KEY_V1"
    );
}

#[test]
fn a_reference_becomes_the_value_wherever_a_string_is() {
    let table = table("g", &[("RAMEN_SECRET_G__KEY", "hun\"ter\n2")]);
    let json = r#"{"a":"x {{$g.KEY}} {{$g.key}}","{{$g.KEY}}":["{{$g.KEY}}",{"b":1}],"n":7}"#;
    assert_eq!(
        substitute(&table, json).unwrap(),
        r#"{"a":"x hun\"ter\n2 hun\"ter\n2","{{$g.KEY}}":["hun\"ter\n2",{"b":1}],"n":7}"#
    );
}

#[test]
fn an_escaped_reference_is_a_reference() {
    let table = table("g", &[("RAMEN_SECRET_G__KEY", "v")]);
    assert_eq!(
        substitute(&table, r#"{"a":"\u007b{\u0024g.KEY}}"}"#).unwrap(),
        r#"{"a":"v"}"#
    );
}

#[test]
fn nothing_to_replace_borrows() {
    let table = table("g", &[("RAMEN_SECRET_G__KEY", "v")]);
    for json in [
        r#"{"a":"plain"}"#,
        r#"{"a":"{{ $g.KEY }}"}"#,
        r#"{"a":"\u00e9"}"#,
        "{}",
    ] {
        assert!(
            matches!(table.substitute(Cow::Borrowed(json)), Ok(Cow::Borrowed(_))),
            "{json}"
        );
    }
}

#[test]
fn sec13_a_value_that_looks_like_a_reference_is_not_resolved_again() {
    let table = table(
        "g",
        &[
            ("RAMEN_SECRET_G__KEY", "{{$g.OTHER}}"),
            ("RAMEN_SECRET_G__OTHER", "deep"),
        ],
    );
    assert_eq!(
        substitute(&table, r#"["{{$g.KEY}}"]"#).unwrap(),
        r#"["{{$g.OTHER}}"]"#
    );
}

#[test]
fn sec14_foreign_and_unknown_references_name_only_themselves() {
    let table = table(
        "g",
        &[
            ("RAMEN_SECRET_G__KEY", "s3cr3t"),
            ("RAMEN_SECRET_OTHER__X", "foreign"),
        ],
    );
    for reference in ["{{$other.X}}", "{{$g.NOPE}}", "{{$g.}}", "{{$G.KEY}}"] {
        let fault = substitute(&table, &format!(r#"{{"a":"pre {reference} post"}}"#)).unwrap_err();
        assert_eq!(
            fault.to_string(),
            format!("unknown secret reference {reference}")
        );
    }
    for text in [
        "{{ $g.KEY }}",
        "{{$g.KEY }}",
        "{{$x}}",
        "{{$.x}}",
        "{{$g.KEY}",
        "{{$g.KEY",
    ] {
        let json = format!(r#"{{"a":"{text}"}}"#);
        assert_eq!(substitute(&table, &json).unwrap(), json, "not a reference");
    }
}

#[test]
fn sec11_a_table_holds_its_own_group_only() {
    let table = table(
        "a",
        &[
            ("RAMEN_SECRET_AB__X", "no"),
            ("RAMEN_SECRET_A__X", "yes"),
            ("PATH", "/"),
        ],
    );
    let vars: Vec<_> = table.vars().collect();
    assert_eq!(vars, [("RAMEN_SECRET_A__X", "yes")]);
    assert_eq!(
        env_name("a", "B__X"),
        env_name("a--b", "X"),
        "a clash that validation refuses"
    );
}

#[test]
fn sec01_one_final_line_break_is_dropped_and_named() {
    let table = table(
        "g",
        &[
            ("RAMEN_SECRET_G__A", "v\n"),
            ("RAMEN_SECRET_G__B", "v\r\n"),
            ("RAMEN_SECRET_G__C", "v\n\n"),
        ],
    );
    let values: Vec<_> = table.vars().map(|(_, value)| value).collect();
    assert_eq!(values, ["v", "v", "v\n"]);
    assert_eq!(table.trimmed().len(), 3);
}

#[test]
fn debug_shows_no_value() {
    let table = table("g", &[("RAMEN_SECRET_G__KEY", "s3cr3t")]);
    assert!(!format!("{table:?}").contains("s3cr3t"));
}

proptest! {
    #[test]
    fn substitution_never_panics_and_gives_json(text in any::<String>(), value in any::<String>()) {
        let table = SecretTable::from_env("g", [("RAMEN_SECRET_G__K".to_owned(), value)]);
        let json = serde_json::to_string(&serde_json::json!({"a": [text, "{{$g.K}}"]})).unwrap();
        if let Ok(out) = substitute(&table, &json) {
            let value: serde_json::Value = serde_json::from_str(&out).unwrap();
            prop_assert_eq!(value["a"].as_array().unwrap().len(), 2);
        }
    }

    #[test]
    fn single_pass_equals_the_model(parts in proptest::collection::vec(0..4usize, 0..12)) {
        let table = SecretTable::from_env("g", [("RAMEN_SECRET_G__K".to_owned(), "{{$g.K}}".to_owned())]);
        let pieces = ["{{$g.K}}", "{{$", "}}", "a"];
        let text: String = parts.iter().map(|part| pieces[*part]).collect();
        // The value is the reference itself, so one pass leaves every text as it was.
        prop_assert_eq!(&*table.resolve(&text).unwrap(), &*text);
    }
}

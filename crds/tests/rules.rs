//! Each rule that the API server holds groups to: one group that it takes and one that it refuses. The cases are in
//! `rules.json`; a real API server is asked the same (`e2e/tests/cluster/t2/rules.rs`).

use kube::core::cel::Validator;
use ramen_crds::{McpGroup, rules};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Cases {
    names: Pair<Vec<String>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    field: String,
    #[serde(flatten)]
    values: Pair<Value>,
}

#[derive(Deserialize)]
struct Pair<T> {
    good: T,
    bad: T,
}

fn cases() -> Cases {
    serde_json::from_str(include_str!("rules.json")).expect("the cases are JSON")
}

/// A group with one field set.
fn group(name: &str, edit: Option<(&str, &Value)>) -> Value {
    let mut group = json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "metadata": {"name": name},
        "spec": {
            "source": {"url": "https://git.example/team/tools"},
            "network": {"allowedCIDRs": ["10.0.0.0/8"]},
        },
    });
    if let Some((path, value)) = edit {
        let (parent, name) = path.rsplit_once('/').expect("paths begin with a slash");
        group
            .pointer_mut(parent)
            .expect("the parent is in the sample")[name] = value.clone();
    }
    group
}

/// What the rules say of it.
fn messages(group: &Value) -> Vec<String> {
    let crd = serde_json::to_value(ramen_crds::crd()).expect("a CRD is JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    match Validator::new().validate(schema, group, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

#[test]
fn every_rule_takes_what_is_good_and_refuses_what_is_bad_with_its_message() {
    let mut broken = Vec::new();
    for Case { field, values } in cases().cases {
        let said = messages(&group("calc", Some((&field, &values.good))));
        assert!(said.is_empty(), "{field} {}: {said:?}", values.good);
        let said = messages(&group("calc", Some((&field, &values.bad))));
        assert!(!said.is_empty(), "{field} {} is taken", values.bad);
        broken.extend(said);
    }
    // No rule is left untried.
    for (rule, message) in rules::ALL.iter().copied().flatten() {
        assert!(broken.iter().any(|said| said.contains(message)), "{rule}");
    }
}

#[test]
fn ops01_ops02_names_that_no_service_can_have_are_refused_at_apply() {
    let Pair { good, bad } = cases().names;
    for name in good {
        assert!(messages(&group(&name, None)).is_empty(), "{name}");
    }
    // No name of a child is ever cut, so two long ones cannot meet.
    for name in bad {
        let said = messages(&group(&name, None));
        assert!(
            said.iter().any(|said| said.contains(rules::NAME.1)),
            "{name}: {said:?}"
        );
    }
}

#[test]
fn what_the_api_server_takes_by_these_rules_the_operator_takes_too() {
    for Case { field, values } in cases().cases {
        let group = group("calc", Some((&field, &values.good)));
        let group: McpGroup = serde_json::from_value(group).unwrap();
        assert_eq!(ramen_crds::validate(&group).err(), None, "{field}");
    }
}

#[test]
fn what_they_refuse_of_addresses_the_operator_refuses_too() {
    let all = cases().cases.into_iter();
    let addresses = all.filter(|case| case.field.starts_with("/spec/network/"));
    for Case { field, values } in addresses {
        let group = group("calc", Some((&field, &values.bad)));
        let group: McpGroup = serde_json::from_value(group).unwrap();
        let faults = ramen_crds::validate(&group).unwrap_err();
        assert_eq!(faults.len(), 1, "{field} {}", values.bad);
    }
}

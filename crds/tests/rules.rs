//! Each rule that the API server holds groups to: one group that it takes and one that it refuses.

use kube::core::cel::Validator;
use ramen_crds::{McpGroup, rules};
use serde_json::{Value, json};

/// A group with some fields set, and what the rules say of it.
fn messages(name: &str, edits: &[(&str, Value)]) -> Vec<String> {
    let crd = serde_json::to_value(ramen_crds::crd()).expect("a CRD is JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut group = json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "metadata": {"name": name},
        "spec": {
            "source": {"url": "https://git.example/team/tools"},
            "network": {"allowedCIDRs": ["10.0.0.0/8"]},
        },
    });
    for (path, value) in edits {
        let (parent, name) = path.rsplit_once('/').expect("paths begin with a slash");
        group
            .pointer_mut(parent)
            .expect("the parent is in the sample")[name] = value.clone();
    }
    match Validator::new().validate(schema, &group, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

/// A field, a value that is taken, a value that is refused.
#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<(&'static str, Value, Value)> {
    let worker = |field: &str, value: &str| json!({ field: value });
    vec![
        (
            "/spec/source/url",
            json!("ssh://git@h/x"),
            json!("ftp://h/x"),
        ),
        (
            "/spec/source/url",
            json!("git@github.com:team/tools.git"),
            json!("/srv/tools"),
        ),
        (
            "/spec/source/url",
            json!("ssh://git@h:22/x"),
            json!("https://me:token@h/x"),
        ),
        ("/spec/source/path", json!("a/b"), json!("a/../../b")),
        ("/spec/source/interval", json!("1h30m"), json!("10s")),
        ("/spec/source/timeout", json!("90s"), json!("11m")),
        (
            "/spec/source/ref",
            json!({"branch": "main"}),
            json!({"branch": "main", "tag": "v1"}),
        ),
        (
            "/spec/source/ref",
            json!({"commit": "a".repeat(40)}),
            json!({"commit": "a".repeat(41)}),
        ),
        (
            "/spec/network/allowedCIDRs",
            json!(["::/0", "10.1.2.3"]),
            json!(["everybody"]),
        ),
        (
            "/spec/access",
            json!({"rules": [{"groups": ["staff"], "tools": ["*"]}]}),
            json!({"rules": [{"tools": ["*"]}]}),
        ),
        (
            "/spec/access",
            json!({"rules": [{"keys": ["ci"], "prompts": ["review"]}]}),
            json!({"rules": [{"keys": ["ci"], "subjects": ["*"], "tools": ["*"]}]}),
        ),
        (
            "/spec/access",
            json!({"rules": [{"claims": [{"name": "team", "values": ["red"]}], "resources": ["demo://*"]}]}),
            json!({"rules": [{"subjects": ["ann"]}]}),
        ),
        (
            "/spec/zones",
            json!([{"name": "a-1"}]),
            json!([{"name": "a_1"}]),
        ),
        (
            "/spec/zones",
            json!([{"name": "a", "replicas": 2}]),
            json!([{"name": "a", "replicas": 2, "autoscaling": {"minReplicas": 1, "maxReplicas": 2}}]),
        ),
        (
            "/spec/zones",
            json!([{"name": "a", "autoscaling": {"minReplicas": 2, "maxReplicas": 2}}]),
            json!([{"name": "a", "autoscaling": {"minReplicas": 3, "maxReplicas": 2}}]),
        ),
        (
            "/spec/worker",
            worker("image", "registry:5000/a/b@sha256:00"),
            worker("image", "a b"),
        ),
        (
            "/spec/worker",
            worker("python", "3.12"),
            worker("python", "3.10"),
        ),
        (
            "/spec/worker",
            worker("callTimeout", "2m"),
            worker("callTimeout", "2h"),
        ),
        (
            "/spec/worker",
            worker("deployTimeout", "20m"),
            worker("deployTimeout", "soon"),
        ),
        (
            "/spec/worker",
            json!({"env": [{"name": "PIP_INDEX_URL", "value": "x"}]}),
            json!({"env": [{"name": "A-B", "value": "x"}]}),
        ),
        (
            "/spec/worker",
            json!({"env": [{"name": "MY_RAMEN", "value": "x"}]}),
            json!({"env": [{"name": "RAMEN_STORE", "value": "x"}]}),
        ),
        (
            "/spec/worker",
            json!({"env": [{"name": "OLD_MODE", "value": "x"}]}),
            json!({"env": [{"name": "LD_PRELOAD", "value": "x"}]}),
        ),
        (
            "/spec/rollout",
            json!({"timeout": "90s"}),
            json!({"timeout": "1s"}),
        ),
    ]
    .into_iter()
    .chain(upstreams())
    .collect()
}

fn upstreams() -> Vec<(&'static str, Value, Value)> {
    let url = "https://mcp.example/mcp";
    let header = |value: Value| json!([{"name": "a", "url": url, "headers": [value]}]);
    let cases = [
        (
            json!([{"name": "time-2", "url": url}]),
            json!([{"name": "my_time", "url": url}]),
        ),
        (
            json!([{"name": "a", "command": "npx", "args": ["x"], "env": [{"name": "A", "value": "b"}]}]),
            json!([{"name": "a", "command": "npx", "url": url}]),
        ),
        (
            json!([{"name": "a", "url": "http://[::1]:8080?x=1@2"}]),
            json!([{"name": "a", "url": "https://me:token@h/mcp"}]),
        ),
        (
            json!([{"name": "a", "url": url, "timeout": "2m"}]),
            json!([{"name": "a", "url": url, "timeout": "11m"}]),
        ),
        (
            json!([{"name": "a", "url": url}]),
            json!([{"name": "a", "url": url, "args": ["x"]}]),
        ),
        (
            json!([{"name": "a", "command": "npx"}]),
            json!([{"name": "a", "command": "npx", "headers": [{"name": "X-A", "value": "b"}]}]),
        ),
        (
            header(
                json!({"name": "Authorization", "secretRef": {"name": "s", "key": "token", "prefix": "Bearer "}}),
            ),
            header(json!({"name": "Authorization"})),
        ),
    ];
    let named = cases
        .into_iter()
        .map(|(good, bad)| ("/spec/upstreams", good, bad));
    named.collect()
}

#[test]
fn every_rule_takes_what_is_good_and_refuses_what_is_bad_with_its_message() {
    let mut broken = Vec::new();
    for (field, good, bad) in cases() {
        let said = messages("calc", &[(field, good.clone())]);
        assert!(said.is_empty(), "{field} {good}: {said:?}");
        let said = messages("calc", &[(field, bad.clone())]);
        assert!(!said.is_empty(), "{field} {bad} is taken");
        broken.extend(said);
    }
    // No rule is left untried.
    let all = [
        rules::SOURCE,
        rules::REFERENCE,
        rules::NETWORK,
        rules::ACCESS,
        rules::ZONE,
        rules::AUTOSCALING,
        rules::WORKER,
        rules::VARIABLE,
        rules::ROLLOUT,
        rules::UPSTREAM,
        rules::UPSTREAM_VALUE,
    ];
    for (rule, message) in all.into_iter().flatten() {
        assert!(broken.iter().any(|said| said.contains(message)), "{rule}");
    }
}

#[test]
fn ops01_ops02_names_that_no_service_can_have_are_refused_at_apply() {
    let most = "a".repeat(40);
    for good in ["a", "calc", "team-a-1", &most] {
        assert!(messages(good, &[]).is_empty(), "{good}");
    }
    // No name of a child is ever cut, so two long ones cannot meet.
    let (long, longer) = ("a".repeat(41), "a".repeat(70));
    for bad in ["team.a", "1team", "a--b", "a-", &long, &longer] {
        let said = messages(bad, &[]);
        assert!(
            said.iter().any(|said| said.contains(rules::NAME.1)),
            "{bad}: {said:?}"
        );
    }
}

#[test]
fn what_the_api_server_takes_by_these_rules_the_operator_takes_too() {
    for (field, good, _) in cases() {
        let mut group = json!({
            "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "metadata": {"name": "calc"},
            "spec": {
                "source": {"url": "https://git.example/team/tools"},
                "network": {"allowedCIDRs": ["10.0.0.0/8"]},
            },
        });
        let (parent, name) = field.rsplit_once('/').unwrap();
        group.pointer_mut(parent).unwrap()[name] = good;
        let group: McpGroup = serde_json::from_value(group).unwrap();
        assert_eq!(ramen_crds::validate(&group).err(), None, "{field}");
    }
}

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use ramen_redact::KeyDigest;
use serde_json::{Value, json};

use super::super::objects;
use super::*;

fn name(namespace: &str, name: &str) -> GroupName {
    GroupName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn asked(group: &str, uid: &str, ranges: &[&str]) -> (GroupName, Asked) {
    let read = objects::asked(&object(json!({
        "metadata": { "namespace": "team-a", "name": group, "uid": uid },
        "spec": { "network": { "allowedCIDRs": ranges }, "later": {} },
        "status": { "whatever": 1 },
    })));
    read.unwrap()
}

#[test]
fn rules_come_with_the_group_and_those_that_cannot_be_read_let_nobody_in() {
    let with = |access: Value| {
        objects::asked(&object(json!({
            "metadata": { "namespace": "team-a", "name": "calc", "uid": "u" },
            "spec": { "network": { "allowedCIDRs": [] }, "access": access },
        })))
    };
    let (_, group) = with(json!({"rules": [{"keys": ["ci"], "tools": ["add"]}]})).unwrap();
    let rules = group.access.unwrap();
    assert!(rules.of_key(Some("ci")).is_some() && rules.of_key(Some("key")).is_none());
    assert!(
        with(json!({"rules": [{"subjects": ["*"], "tools": ["*"], "onlyOnMondays": true}]}))
            .is_err()
    );
    assert!(with(json!({"rules": [{"tools": ["*"]}]})).is_err());
}

#[test]
fn a_key_has_the_name_that_the_operator_tells() {
    let digest = |key: &str| ramen_redact::KeyDigest::of(key);
    let lines = format!(
        "{} ci\n{}",
        digest("rmk_a").to_hex(),
        digest("rmk_b").to_hex()
    );
    let (_, found) = objects::credentials(&secret("calc", "u", &lines)).unwrap();
    assert_eq!(found.keys.name_of(&digest("rmk_a")), Some("ci"));
    assert_eq!(found.keys.name_of(&digest("rmk_b")), None);
    assert_eq!(found.keys.len(), 2);
}

fn secret(group: &str, uid: &str, callers: &str) -> Secret {
    object(json!({
        "metadata": {
            "namespace": "gateways", "name": gateway_name(group),
            "labels": {
                "ramen.dev/namespace": "team-a", "ramen.dev/group": group, "ramen.dev/group-uid": uid,
            },
        },
        "data": {
            "callers": base64(callers), "worker-key": base64("rmk_gateway\n"),
        },
    }))
}

fn gateway_name(group: &str) -> String {
    ramen_crds::gateway::secret_name("team-a", group)
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A slice with these addresses, each of the pod of that uid, ready or not.
fn slice(
    group: &str,
    zone: &str,
    family: &str,
    ends: &[(&str, &str, Value)],
) -> (GroupName, Slice) {
    let ends: Vec<_> = ends
        .iter()
        .map(|(pod, address, ready)| {
            json!({
                "addresses": [address], "conditions": { "ready": ready },
                "targetRef": { "kind": "Pod", "uid": pod },
            })
        })
        .collect();
    let slice: EndpointSlice = object(json!({
        "metadata": {
            "namespace": "team-a", "name": "s",
            "labels": { "ramen.dev/group": group, "ramen.dev/zone": zone },
        },
        "addressType": family,
        "ports": [{ "name": "metrics", "port": 9090 }, { "name": "grpc", "port": 50051 }],
        "endpoints": ends,
    }));
    objects::slice(&slice).unwrap()
}

fn is<T>(object: &str, read: (GroupName, T)) -> Seen<T> {
    let what = What::Is(("ns".to_owned(), object.to_owned()), Some(read));
    Seen { part: 0, what }
}

fn gone<T>(object: &str) -> Seen<T> {
    let what = What::Gone(("ns".to_owned(), object.to_owned()));
    Seen { part: 0, what }
}

fn known() -> Known {
    let mut known = Known::default();
    known.asked.part();
    known.credentials.part();
    known.slices.part();
    known
}

fn served(known: &Known, group: &str) -> Option<Vec<(String, Option<String>)>> {
    let spec = known.spec(&name("team-a", group))?;
    let workers = spec.workers.into_iter();
    Some(workers.map(|at| (at.address, at.zone)).collect())
}

fn with_group(uid: &str) -> Known {
    let mut known = known();
    known.take(Change::Asked(is(
        "calc",
        asked("calc", uid, &["10.0.0.0/8"]),
    )));
    let read = objects::credentials(&secret("calc", "u-1", &KeyDigest::of("rmk_a").to_hex()));
    known.take(Change::Credentials(is("secret", read.unwrap())));
    known
}

#[test]
fn a_group_has_the_keys_of_its_secret_and_the_ranges_of_its_spec() {
    let known = with_group("u-1");
    let spec = known.spec(&name("team-a", "calc")).unwrap();
    assert!(spec.keys.admits("rmk_a") && !spec.keys.admits("rmk_b"));
    assert!(spec.ranges.contains([10, 1, 1, 1].into()));
    assert!(!spec.ranges.contains([127, 0, 0, 1].into()));
    assert_eq!(spec.worker_key.expose(), "rmk_gateway");
    assert_eq!(spec.workers, []);
    assert_eq!(known.spec(&name("team-b", "calc")).map(|_| ()), None);
}

#[test]
fn the_secret_of_a_group_of_the_same_name_before_it_opens_nothing() {
    assert_eq!(served(&with_group("u-2"), "calc"), None);
    let mut known = with_group("u-1");
    known.take(Change::Credentials(gone("secret")));
    assert_eq!(served(&known, "calc"), None);
}

#[test]
fn workers_are_the_ready_pods_of_each_zone_and_each_pod_once() {
    let mut known = with_group("u-1");
    let ends = [
        ("p-1", "10.0.0.1", json!(true)),
        ("p-2", "10.0.0.2", json!(false)),
        // As the API has it: not known is ready.
        ("p-3", "10.0.0.3", Value::Null),
    ];
    let touched = known.take(Change::Slices(is(
        "east",
        slice("calc", "east", "IPv4", &ends),
    )));
    assert_eq!(touched, BTreeSet::from([name("team-a", "calc")]));
    let six = [
        ("p-1", "fd00::1", json!(true)),
        ("p-9", "fd00::9", json!(true)),
    ];
    known.take(Change::Slices(is(
        "east-6",
        slice("calc", "east", "IPv6", &six),
    )));
    let west = [("p-4", "10.0.0.4", json!(true))];
    known.take(Change::Slices(is(
        "west",
        slice("calc", "west", "IPv4", &west),
    )));
    let wanted = [
        ("10.0.0.1:50051", "east"),
        ("10.0.0.3:50051", "east"),
        ("10.0.0.4:50051", "west"),
        ("[fd00::9]:50051", "east"),
    ]
    .map(|(address, zone)| (address.to_owned(), Some(zone.to_owned())));
    assert_eq!(served(&known, "calc").unwrap(), wanted);
    // A slice that moves on to another group is that one's alone.
    let touched = known.take(Change::Slices(is(
        "west",
        slice("other", "west", "IPv4", &west),
    )));
    assert_eq!(touched.len(), 2);
    assert_eq!(served(&known, "calc").unwrap().len(), 3);
}

#[test]
fn a_list_that_is_made_again_is_the_truth_of_its_own_part_alone() {
    let mut known = known();
    let second = known.asked.part();
    let seen = |part, what| Change::Asked(Seen { part, what });
    let there = |group: &str| {
        What::Is(
            ("ns".to_owned(), group.to_owned()),
            Some(asked(group, "u", &[])),
        )
    };
    for (part, group) in [(0, "a"), (0, "b"), (second, "c")] {
        known.take(seen(part, there(group)));
    }
    assert!(!known.is_complete());
    known.take(seen(0, What::Begins));
    known.take(seen(0, there("b")));
    assert_eq!(
        known.len(),
        3,
        "nothing is dropped before the list is whole"
    );
    let touched = known.take(seen(0, What::Listed));
    assert_eq!(touched, BTreeSet::from([name("team-a", "a")]));
    assert_eq!(known.len(), 2);
    known.take(seen(second, What::Begins));
    assert_eq!(known.take(seen(second, What::Listed)).len(), 1);
    assert!(
        !known.is_complete(),
        "secrets and slices are not listed yet"
    );
    known.take(Change::Credentials(Seen {
        part: 0,
        what: What::Listed,
    }));
    known.take(Change::Slices(Seen {
        part: 0,
        what: What::Listed,
    }));
    assert!(known.is_complete());
    // Nothing is remembered of what is gone.
    known.take(Change::Asked(gone("b")));
    assert!(known.asked.objects.is_empty() && known.asked.of_group.is_empty());
}

#[test]
fn what_is_wrong_with_an_object_is_said_and_no_secret_with_it() {
    let fault = |secret: Secret| objects::credentials(&secret).unwrap_err();
    assert!(fault(secret("calc", "u", "rmk_plain")).contains("no digest"));
    let mut other = secret("calc", "u", "");
    other.metadata.name = Some(gateway_name("victim"));
    assert!(fault(other).contains("two groups"));
    let mut empty = secret("calc", "u", "");
    empty.data = None;
    assert_eq!(fault(empty), "it has no entry `callers`");
    let none = objects::asked(&object(json!({ "metadata": {}, "spec": {} }))).unwrap_err();
    assert!(none.contains("network"), "{none}");
    // A range that is none makes the group narrower, not wider, and is no reason to drop it.
    let (_, narrowed) = asked("calc", "u", &["10.0.0.1/8", "192.0.2.7"]);
    assert!(narrowed.ranges.contains([192, 0, 2, 7].into()));
    assert!(!narrowed.ranges.contains([10, 0, 0, 1].into()));
}

#[test]
fn upstreams_come_with_the_secret_and_a_broken_list_costs_only_them() {
    let with = |upstreams: &str| {
        let mut secret = secret("calc", "u-1", "");
        let entry = k8s_openapi::ByteString(upstreams.as_bytes().to_vec());
        secret
            .data
            .as_mut()
            .unwrap()
            .insert("upstreams".to_owned(), entry);
        objects::credentials(&secret).unwrap().1.upstreams
    };
    let all = with(
        r#"[{"name":"web","url":"https://mcp.example/mcp","values":{"X":"t0ken"},"timeoutSecs":5,"allowedTools":["a*"]},
            {"name":"gone","url":"https://mcp.example/mcp","timeoutSecs":5,"fault":"X: the key k of the Secret s is not there"},
            {"name":"files","command":"npx","args":["x"],"timeoutSecs":5}]"#,
    );
    let web = all[0].server.as_ref().unwrap();
    assert_eq!(web.timeout, Some(std::time::Duration::from_secs(5)));
    assert_eq!(web.allowed_tools, ["a*"]);
    assert!(!format!("{all:?}").contains("t0ken"));
    assert_eq!(
        all[1].server.as_ref().unwrap_err(),
        "X: the key k of the Secret s is not there"
    );
    assert!(
        all[2].server.is_ok(),
        "whether programs are started is said elsewhere"
    );
    for broken in ["{}", "[1]", "not json"] {
        assert!(with(broken).is_empty(), "{broken}");
    }
}

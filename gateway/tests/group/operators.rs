//! The platform's operations for those who are signed in elsewhere: what the rules of operators make of a token.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::Full;
use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::Door;
use ramen_gateway::operations::platform::{self, Change, Platform, Who};
use ramen_gateway::operations::{Grant, Keyring, Known, OpError, Rule};
use ramen_gateway::origin::Sites;
use ramen_gateway::recent::{Ended, Recent};
use ramen_gateway::{Gateway, GroupName, Groups, gateway};
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeySet;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::issuer::{Issuer, PUBLIC};
use crate::logs::Log;
use crate::support::{self, Got, spec};

/// Staff does everything in `team-a` and looks at `team-c`, guests look at the groups of `team-b`.
const RULES: &str = "rules:
- {groups: [staff], level: write, namespaces: [team-a]}
- {groups: [staff], level: read, namespaces: [team-c]}
- {groups: [guests], level: read, operations: ['groups.*'], namespaces: ['team-b*']}
";
const KEY: &str = "rmk_operator";
/// The namespaces that have a group `calc`.
const NAMESPACES: [&str; 3] = ["team-a", "team-b", "team-c"];

/// Groups that remember who changed them.
#[derive(Default)]
struct Kept {
    changed: Mutex<Vec<(String, Change, Who)>>,
    /// Happens once while an operation runs.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Kept {
    fn find(&self, name: &GroupName) -> Result<Value, OpError> {
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        if name.name == "calc" && NAMESPACES.contains(&name.namespace.as_str()) {
            Ok(json!({"group": name.to_string(), "ready": true}))
        } else {
            Err(OpError::no_group(name))
        }
    }
}

type Answered<'a, T> = BoxFuture<'a, Result<T, OpError>>;

impl Platform for Kept {
    fn groups(&self) -> Answered<'_, Vec<Value>> {
        let all = NAMESPACES.iter();
        let all = all.map(|namespace| json!({"group": format!("{namespace}/calc"), "ready": true}));
        Box::pin(std::future::ready(Ok(all.collect())))
    }

    fn group<'a>(&'a self, name: &'a GroupName) -> Answered<'a, Value> {
        Box::pin(std::future::ready(self.find(name)))
    }

    fn errors<'a>(&'a self, name: &'a GroupName) -> Answered<'a, Vec<Value>> {
        Box::pin(std::future::ready(self.find(name).map(|_| Vec::new())))
    }

    fn events<'a>(&'a self, name: &'a GroupName) -> Answered<'a, Vec<Value>> {
        Box::pin(std::future::ready(self.find(name).map(|_| Vec::new())))
    }

    fn change<'a>(&'a self, name: &'a GroupName, change: Change, who: Who) -> Answered<'a, Value> {
        let asked = change.name();
        let done = self.find(name).map(|_| {
            let mut changed = self.changed.lock().unwrap();
            changed.push((name.to_string(), change, who));
            json!({"group": name.to_string(), "asked": asked})
        });
        Box::pin(std::future::ready(done))
    }
}

struct Bench {
    issuer: Issuer,
    kept: Arc<Kept>,
    keyring: Arc<Keyring>,
    gateway: Gateway,
    _stop: watch::Sender<bool>,
}

fn known(rules: &str) -> Known {
    Known {
        grants: vec![Grant {
            name: "walt".into(),
            keys: KeySet::from_lines(KEY),
            access: vec!["*:*".into()],
        }],
        rules: Rule::parse(rules).unwrap(),
    }
}

impl Bench {
    async fn open() -> Self {
        let issuer = Issuer::start().await;
        let oidc = issuer.oidc();
        let (kept, recent) = (Arc::<Kept>::default(), Arc::<Recent>::default());
        for namespace in NAMESPACES {
            let group = GroupName {
                namespace: namespace.into(),
                name: "calc".into(),
            };
            recent.note(&Ended {
                group: &group,
                caller: &Arc::from("key:1"),
                method: "tools/list",
                name: None,
                status: 200,
                took: Duration::ZERO,
            });
        }
        let keyring = Arc::new(Keyring::trusting(Some(Arc::clone(&oidc))));
        keyring.replace(known(RULES));
        let groups = Groups::default();
        let operations = platform::mount(
            Arc::clone(&kept) as Arc<dyn Platform>,
            groups.clone(),
            Arc::clone(&recent),
            Arc::clone(&keyring),
            CidrSet::parse_list("127.0.0.0/8").unwrap(),
            "",
        );
        let (stop, stopping) = watch::channel(false);
        let gateway = Gateway {
            groups,
            door: Door {
                address: AddressRule::default(),
                sites: Sites {
                    loopback: true,
                    ..Sites::default()
                },
                callers: Callers::new(Limits::default()),
            },
            call_timeout: Duration::from_secs(30),
            stopping,
            oidc: Some(oidc),
            operations: Some(operations.unwrap()),
            recent,
            metrics: Arc::default(),
            info: gateway::info(),
        };
        Self {
            issuer,
            kept,
            keyring,
            gateway,
            _stop: stop,
        }
    }

    /// A token of somebody in this group.
    fn token(&self, group: &str) -> String {
        let mut claims = self.issuer.claims();
        claims["groups"] = json!([group]);
        self.issuer.token(&claims)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // Boxed: it is large, and each test would carry it around.
        Got::of(Box::pin(self.gateway.answer(peer, request)).await).await
    }

    /// `POST /api/v1/<path>`.
    async fn ask(&self, token: &str, path: &str, input: Value) -> Got {
        self.send(post(token, path, &input)).await
    }

    /// One operation with a group as its input.
    async fn on(&self, token: &str, path: &str, group: &str) -> Got {
        let mut input = json!({"group": group});
        if path == "groups/deploy" {
            input["ref"] = "main".into();
        }
        self.ask(token, path, input).await
    }

    async fn rpc(&self, token: &str, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.ask(token, "mcp", body).await.json()
    }
}

fn post(token: &str, path: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::post(format!("/api/v1/{path}"))
        .header("host", "localhost")
        .header("authorization", format!("Bearer {token}"))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2025-11-25")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

fn body(got: &Got) -> String {
    String::from_utf8_lossy(&got.body).into_owned()
}

fn code(got: &Got) -> (u16, String) {
    let code = got.json()["error"]["code"].as_str().map(str::to_owned);
    (got.status.as_u16(), code.unwrap_or_default())
}

#[tokio::test]
async fn the_bearer_of_a_token_does_what_the_rules_allow_and_its_subject_is_on_record() {
    let bench = Bench::open().await;
    let staff = bench.token("staff");
    let got = bench.on(&staff, "groups/deploy", "team-a/calc").await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.json());
    let params = json!({"name": "groups_suspend", "arguments": {"group": "team-a/calc"}});
    let suspended = bench.rpc(&staff, "tools/call", params).await;
    assert_eq!(suspended["result"]["structuredContent"]["asked"], "suspend");
    let changed = bench.kept.changed.lock().unwrap();
    assert_eq!(changed.len(), 2);
    for (group, _, who) in &*changed {
        assert_eq!(group, "team-a/calc");
        let name = &*who.caller;
        assert!(
            name.starts_with("oidc:") && name.ends_with(":ann"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_group_that_has_the_path_of_the_operations_is_called_by_its_header_and_that_is_told() {
    let (log, _guard) = Log::begin();
    let bench = Bench::open().await;
    let mut group = spec("v1", support::KEY, &[]);
    bench.gateway.groups.set(&group);
    assert_eq!(log.count("the path of this group"), 0, "it is default/v1");
    group.name.namespace = "api".into();
    bench.gateway.groups.set(&group);
    bench.gateway.groups.set(&group);
    assert_eq!(log.count("the path of this group"), 1, "{}", log.text());
    // Who has no key is not told that the method is wrong.
    let get = |path: &str, group: &str| {
        let request = Request::get(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", support::KEY))
            .header("ramen-group", group);
        bench.send(request.body(Full::default()).unwrap())
    };
    assert_eq!(get("/mcp", "api/v1").await.status.as_u16(), 405);
    assert_eq!(get("/mcp", "api/v2").await.status.as_u16(), 401);
    assert_eq!(get("/api/v1/mcp", "api/v1").await.status.as_u16(), 401);
}

#[tokio::test]
async fn sec_a_group_that_the_rules_do_not_reach_looks_like_one_that_is_not_there() {
    let bench = Bench::open().await;
    let staff = bench.token("staff");
    let names = [("team-b", "calc"), ("team-b", "none"), ("nowhere", "calc")];
    for path in [
        "groups/get",
        "groups/errors",
        "groups/events",
        "tools/list",
        "groups/deploy",
        "groups/rollback",
        "groups/suspend",
        "groups/resume",
        "keys/rotate",
    ] {
        for (namespace, name) in names {
            let group = format!("{namespace}/{name}");
            let hidden = bench.on(&staff, path, &group).await;
            let unknown = bench.on(KEY, path, &format!("{namespace}/gone")).await;
            let text = body(&unknown).replace("/gone", &format!("/{name}"));
            assert_eq!(
                (hidden.status, body(&hidden)),
                (unknown.status, text),
                "{path} {group}"
            );
            assert_eq!(code(&hidden), (404, "not_found".to_owned()));
        }
    }
    assert!(bench.kept.changed.lock().unwrap().is_empty());
    // There is one: the bearer of a key sees it.
    let got = bench.on(KEY, "groups/get", "team-b/calc").await;
    assert_eq!(got.status, StatusCode::OK);
}

#[tokio::test]
async fn lists_hold_what_the_rules_reach() {
    let bench = Bench::open().await;
    let names = async |token: &str, path: &str, list: &str| {
        let listed = bench.ask(token, path, json!({})).await.json();
        let listed = listed[list]
            .as_array()
            .unwrap_or_else(|| panic!("{listed}"));
        let mut names: Vec<_> = listed
            .iter()
            .map(|one| one["group"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let (staff, guest) = (bench.token("staff"), bench.token("guests"));
    let (own, all) = (
        ["team-a/calc", "team-c/calc"],
        ["team-a/calc", "team-b/calc", "team-c/calc"],
    );
    assert_eq!(names(&staff, "groups/list", "groups").await, own);
    assert_eq!(names(&staff, "calls/recent", "calls").await, own);
    assert_eq!(
        names(&guest, "groups/list", "groups").await,
        ["team-b/calc"]
    );
    assert_eq!(names(KEY, "groups/list", "groups").await, all);
    assert_eq!(names(KEY, "calls/recent", "calls").await, all);
}

#[tokio::test]
async fn what_a_rule_does_not_allow_is_forbidden_and_no_tool() {
    let bench = Bench::open().await;
    let guest = bench.token("guests");
    let listed = bench.rpc(&guest, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tools: Vec<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        tools,
        [
            "groups_errors",
            "groups_events",
            "groups_get",
            "groups_list"
        ]
    );
    let forbidden = (403, "forbidden".to_owned());
    for path in ["groups/deploy", "keys/rotate", "tools/list", "calls/recent"] {
        let got = bench.on(&guest, path, "team-b/calc").await;
        assert_eq!(code(&got), forbidden, "{path}");
    }
    // Allowed elsewhere, and here it may only be looked at.
    let staff = bench.token("staff");
    let got = bench.on(&staff, "groups/deploy", "team-c/calc").await;
    assert_eq!(code(&got), forbidden);
    assert_eq!(
        bench.on(&staff, "groups/get", "team-c/calc").await.status,
        200
    );
    assert!(bench.kept.changed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn somebody_whom_no_rule_is_about_and_a_token_that_is_not_good_open_nothing() {
    let bench = Bench::open().await;
    let path = "groups/list";
    let got = bench.ask(&bench.token("visitors"), path, json!({})).await;
    assert_eq!(code(&got), (403, "forbidden".to_owned()));
    for (what, claim, value) in [
        (
            "of a group",
            "aud",
            json!(format!("{PUBLIC}/team-a/calc/mcp")),
        ),
        ("over", "exp", json!(0)),
        ("of another issuer", "iss", json!("https://other.example")),
    ] {
        let mut claims = bench.issuer.claims();
        claims[claim] = value;
        let token = bench.issuer.token(&claims);
        for place in [path, "mcp"] {
            let got = bench.ask(&token, place, json!({})).await;
            assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{what}");
            let told = got.headers["www-authenticate"].to_str().unwrap();
            let description = "/.well-known/oauth-protected-resource/api/v1/mcp";
            assert!(told.contains("invalid_token"), "{told}");
            assert!(
                told.contains(&format!("resource_metadata=\"{PUBLIC}{description}\"")),
                "{told}"
            );
        }
    }
    let request = Request::get("/.well-known/oauth-protected-resource/api/v1/mcp");
    let request = request.header("host", "localhost").body(Full::default());
    let description = bench.send(request.unwrap()).await.json();
    assert_eq!(description["resource"], format!("{PUBLIC}/api/v1/mcp"));
    // A token that is for the operations alone.
    let mut claims = bench.issuer.claims();
    claims["aud"] = description["resource"].clone();
    let token = bench.issuer.token(&claims);
    assert_eq!(bench.ask(&token, path, json!({})).await.status, 200);
}

#[tokio::test]
async fn rules_that_change_while_an_operation_runs_withhold_its_answer() {
    let bench = Bench::open().await;
    let staff = bench.token("staff");
    let elsewhere = "rules: [{groups: [staff], level: write, namespaces: [team-c]}]";
    let reading = "rules: [{groups: [staff], level: read, operations: [tools.list]}]";
    let nobody = "rules: []";
    for (after, wanted) in [
        (elsewhere, (404, "not_found")),
        (reading, (403, "forbidden")),
        (nobody, (403, "forbidden")),
    ] {
        bench.keyring.replace(known(RULES));
        let keyring = Arc::clone(&bench.keyring);
        let change = Box::new(move || keyring.replace(known(after)));
        *bench.kept.meanwhile.lock().unwrap() = Some(change);
        let got = bench.on(&staff, "groups/get", "team-a/calc").await;
        assert_eq!(code(&got), (wanted.0, wanted.1.to_owned()), "{after}");
        let late = bench.on(&staff, "groups/get", "team-a/calc").await;
        assert_eq!(code(&late), code(&got), "{after}");
    }
}

//! The platform's operations for those whom rules of operators are about: what they make of a token, and of a key.

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
use ramen_gateway::operations::{Grant, Keyring, Known, Level, OpError, Rule};
use ramen_gateway::origin::Sites;
use ramen_gateway::recent::{Called, Recent};
use ramen_gateway::{Gateway, GroupName, Groups, gateway};
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeySet;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::issuer::{Issuer, PUBLIC};
use crate::logs::Log;
use crate::support::{self, Got, spec};

/// Staff does everything in `team-a` and looks at `team-c`, guests look at the groups of `team-b`. The same is said of
/// two keys.
const RULES: &str = "rules:
- {groups: [staff], level: write, namespaces: [team-a]}
- {groups: [staff], level: read, namespaces: [team-c]}
- {groups: [guests], level: read, operations: ['groups.*'], namespaces: ['team-b*']}
";
/// Opens everything.
const KEY: &str = "rmk_operator";
/// Keys of which rules say what they say of a group of tokens.
const LIKE: [(&str, &str, &str); 2] = [("staff", "lena", "rmk_lena"), ("guests", "gus", "rmk_gus")];
/// No rule is about it.
const UNNAMED: &str = "rmk_unnamed";
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

/// Rules that are about groups of tokens, and about the keys that are like them.
fn known(rules: &str) -> Known {
    let grant = |name: &str, key: &str, level: Option<Level>| Grant {
        name: name.into(),
        keys: KeySet::from_lines(key),
        rule: level.map(Rule::everywhere),
    };
    let mut grants = vec![
        grant("walt", KEY, Some(Level::Write)),
        grant("nora", UNNAMED, None),
    ];
    let mut of_keys = rules.to_owned();
    for (group, name, key) in LIKE {
        grants.push(grant(name, key, None));
        of_keys = of_keys.replace(&format!("groups: [{group}]"), &format!("keys: [{name}]"));
    }
    let rules = [rules, of_keys.as_str()].map(|rules| Rule::parse(rules).unwrap());
    Known {
        grants,
        rules: rules.concat(),
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
            let caller = Arc::from("key:1");
            drop(recent.begin(Called::new(&group, &caller, "tools/list", None)));
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

    /// A token of somebody in this group, and the key of which the same is said.
    fn both(&self, group: &str) -> [String; 2] {
        let like = LIKE.iter().find(|(known, ..)| *known == group);
        [self.token(group), like.unwrap().2.to_owned()]
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
        self.ask(token, path, about(path, group)).await
    }

    /// The same as a tool: the answer, and whether it is an error.
    async fn tool(&self, token: &str, path: &str, group: &str) -> (String, bool) {
        let params = json!({"name": path.replace('/', "_"), "arguments": about(path, group)});
        let result = self.rpc(token, "tools/call", params).await["result"].take();
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{path}: {result}"));
        (text.to_owned(), result["isError"] == true)
    }

    /// The groups that a list names.
    async fn names(&self, token: &str, path: &str, list: &str) -> Vec<String> {
        let listed = self.ask(token, path, json!({})).await.json();
        let listed = listed[list]
            .as_array()
            .unwrap_or_else(|| panic!("{listed}"));
        let names = listed.iter().map(|one| one["group"].as_str().unwrap());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The tools that are listed.
    async fn tools(&self, token: &str) -> Vec<String> {
        let listed = self.rpc(token, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    async fn rpc(&self, token: &str, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.ask(token, "mcp", body).await.json()
    }
}

/// The input of an operation on a group.
fn about(path: &str, group: &str) -> Value {
    let mut input = json!({"group": group});
    if path == "groups/deploy" {
        input["ref"] = "main".into();
    }
    input
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
async fn a_caller_does_what_the_rules_allow_and_is_on_record() {
    let bench = Bench::open().await;
    let callers = bench.both("staff");
    for caller in &callers {
        let got = bench.on(caller, "groups/deploy", "team-a/calc").await;
        assert_eq!(got.status, StatusCode::OK, "{}", got.json());
        let got = bench.on(caller, "groups/rollback", "team-a/calc").await;
        assert_eq!(got.status, StatusCode::OK, "{}", got.json());
        let (suspended, error) = bench.tool(caller, "groups/suspend", "team-a/calc").await;
        assert!(!error && suspended.contains("suspend"), "{suspended}");
    }
    let changed = bench.kept.changed.lock().unwrap();
    assert_eq!(changed.len(), 6);
    for (at, (group, change, who)) in changed.iter().enumerate() {
        assert_eq!(group, "team-a/calc");
        assert_eq!(change.name(), ["deploy", "rollback", "suspend"][at % 3]);
        let name = &*who.caller;
        let (begin, end) = [("oidc:", ":ann"), ("lena/key:", "")][at / 3];
        assert!(name.starts_with(begin) && name.ends_with(end), "{name}");
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
            let (group, gone) = (format!("{namespace}/{name}"), format!("{namespace}/gone"));
            let unknown = bench.on(KEY, path, &gone).await;
            let text = body(&unknown).replace("/gone", &format!("/{name}"));
            let (unknown_tool, _) = bench.tool(KEY, path, &gone).await;
            let tool = (unknown_tool.replace("/gone", &format!("/{name}")), true);
            for caller in &bench.both("staff") {
                let hidden = bench.on(caller, path, &group).await;
                assert_eq!(
                    (hidden.status, &body(&hidden)),
                    (unknown.status, &text),
                    "{path} {group}"
                );
                assert_eq!(code(&hidden), (404, "not_found".to_owned()));
                assert_eq!(bench.tool(caller, path, &group).await, tool, "{path}");
            }
        }
    }
    assert!(bench.kept.changed.lock().unwrap().is_empty());
    // There is one: the bearer of a key for everything sees it.
    let got = bench.on(KEY, "groups/get", "team-b/calc").await;
    assert_eq!(got.status, StatusCode::OK);
}

#[tokio::test]
async fn lists_hold_what_the_rules_reach() {
    let bench = Bench::open().await;
    let all = ["team-a/calc", "team-b/calc", "team-c/calc"];
    for (path, list) in [("groups/list", "groups"), ("calls/recent", "calls")] {
        for staff in &bench.both("staff") {
            let seen = bench.names(staff, path, list).await;
            assert_eq!(seen, ["team-a/calc", "team-c/calc"], "{path}");
        }
        assert_eq!(bench.names(KEY, path, list).await, all, "{path}");
    }
    for guest in &bench.both("guests") {
        let seen = bench.names(guest, "groups/list", "groups").await;
        assert_eq!(seen, ["team-b/calc"]);
    }
}

#[tokio::test]
async fn what_a_rule_does_not_allow_is_forbidden_and_no_tool() {
    let bench = Bench::open().await;
    let forbidden = (403, "forbidden".to_owned());
    for guest in &bench.both("guests") {
        assert_eq!(
            bench.tools(guest).await,
            [
                "groups_errors",
                "groups_events",
                "groups_get",
                "groups_list"
            ]
        );
        for path in ["groups/deploy", "keys/rotate", "tools/list", "calls/recent"] {
            let got = bench.on(guest, path, "team-b/calc").await;
            assert_eq!(code(&got), forbidden, "{path}");
            let (told, error) = bench.tool(guest, path, "team-b/calc").await;
            assert!(error && told.contains("\"forbidden\""), "{path}: {told}");
        }
    }
    // Allowed elsewhere, and here it may only be looked at.
    for staff in &bench.both("staff") {
        let got = bench.on(staff, "groups/deploy", "team-c/calc").await;
        assert_eq!(code(&got), forbidden);
        let got = bench.on(staff, "groups/get", "team-c/calc").await;
        assert_eq!(got.status, StatusCode::OK);
    }
    assert!(bench.kept.changed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn somebody_whom_no_rule_is_about_and_a_token_that_is_not_good_open_nothing() {
    let bench = Bench::open().await;
    let path = "groups/list";
    for nobody in [bench.token("visitors").as_str(), UNNAMED] {
        let got = bench.ask(nobody, path, json!({})).await;
        assert_eq!(code(&got), (403, "forbidden".to_owned()));
    }
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
    let elsewhere = "rules: [{groups: [staff], level: write, namespaces: [team-c]}]";
    let reading = "rules: [{groups: [staff], level: read, operations: [tools.list]}]";
    let nobody = "rules: []";
    for (after, wanted) in [
        (elsewhere, (404, "not_found")),
        (reading, (403, "forbidden")),
        (nobody, (403, "forbidden")),
    ] {
        for staff in &bench.both("staff") {
            bench.keyring.replace(known(RULES));
            let keyring = Arc::clone(&bench.keyring);
            let change = Box::new(move || keyring.replace(known(after)));
            *bench.kept.meanwhile.lock().unwrap() = Some(change);
            let got = bench.on(staff, "groups/get", "team-a/calc").await;
            assert_eq!(code(&got), (wanted.0, wanted.1.to_owned()), "{after}");
            let late = bench.on(staff, "groups/get", "team-a/calc").await;
            assert_eq!(code(&late), code(&got), "{after}");
        }
    }
}

//! Tokens of an issuer at the group endpoint, and what access rules make of them.

mod algorithms;
mod followed;
mod keys;
mod refused;
mod unseen;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use ramen_gateway::Oidc;
use ramen_gateway::callers::Limits;
use ramen_group::AccessRules;
use ramen_group::access::RuleText;
use serde_json::{Value, json};

use crate::issuer::{Issuer, PUBLIC, now};
use crate::signer::Signer;
use crate::support::{Events, Got, KEY, PATH, Running, call, eventually, soon, spec};
use crate::worker::Worker;

/// Everybody who is signed in may call `echo`, `wait` and `quiet`; staff may call everything.
fn rules() -> Arc<AccessRules> {
    let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let everybody = RuleText {
        subjects: list(&["*"]),
        tools: list(&["echo", "wait", "quiet"]),
        ..RuleText::default()
    };
    let staff = RuleText {
        groups: list(&["staff"]),
        tools: list(&["*"]),
        resources: list(&["*"]),
        prompts: list(&["*"]),
        ..RuleText::default()
    };
    Arc::new(AccessRules::new(vec![everybody, staff]).unwrap())
}

async fn bench() -> (Issuer, Worker, Running) {
    let issuer = Issuer::start().await;
    let (worker, gateway) = trusting(issuer.oidc()).await;
    (issuer, worker, gateway)
}

async fn trusting(oidc: Arc<Oidc>) -> (Worker, Running) {
    let worker = Worker::start().await;
    let gateway = Running::trusting(&[worker.address], Limits::default(), oidc).await;
    allow(&gateway, &worker, Some(rules()));
    (worker, gateway)
}

fn allow(gateway: &Running, worker: &Worker, access: Option<Arc<AccessRules>>) {
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.access = access;
    gateway.groups.set(&spec);
}

/// The same until this is its status.
async fn until(gateway: &Running, token: &str, status: StatusCode) {
    soon(async {
        while called_with(gateway, token).await.status != status {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A subscription of the bearer of a token.
async fn listening(gateway: &Running, token: &str) -> Events {
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut request = gateway.modern("subscriptions/listen", params);
    let value = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", value);
    let mut events = Events::of(gateway.open(request).await);
    let first = events.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    events
}

/// The gateway ends it, and says so.
async fn ended(events: &mut Events) {
    assert!(events.next().await.unwrap()["result"].is_object());
    assert_eq!(events.next().await, None);
}

async fn called_with(gateway: &Running, token: &str) -> Got {
    called(gateway, token, "echo").await
}

async fn called(gateway: &Running, token: &str, tool: &str) -> Got {
    let mut request = gateway.post(&call(tool));
    let value = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", value);
    gateway.send(request).await
}

#[tokio::test]
async fn a_valid_token_calls_a_tool_and_the_worker_hears_who_calls() {
    let (issuer, worker, gateway) = bench().await;
    let got = called_with(&gateway, &issuer.good()).await;
    assert_eq!(
        (got.status, got.text().as_str()),
        (StatusCode::OK, r#"{"a":1}"#)
    );
    let caller = worker.state.metadata.lock().unwrap();
    let caller = caller.get("ramen-caller").unwrap().to_str().unwrap();
    assert!(
        caller.starts_with("oidc:") && caller.ends_with(":ann"),
        "{caller}"
    );
    drop(got);
    assert_eq!(issuer.fetched(), 1);
}

#[tokio::test]
async fn a_token_for_the_group_is_for_the_group_alone() {
    let (issuer, worker, gateway) = bench().await;
    let mut other = spec("other", KEY, &[worker.address]);
    other.access = Some(rules());
    gateway.groups.set(&other);
    let mut claims = issuer.claims();
    claims["aud"] = json!(["https://elsewhere.example", format!("{PUBLIC}{PATH}")]);
    let token = issuer.token(&claims);
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    let mut request = gateway.post(&call("echo"));
    *request.uri_mut() = "/default/other/mcp".parse().unwrap();
    let value = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", value);
    assert_eq!(gateway.send(request).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn another_audience_counts_when_the_settings_name_it() {
    let issuer = Issuer::start().await;
    let oidc = issuer.oidc_with("  audiences: ['api://ramen']\n");
    let (_worker, gateway) = trusting(oidc).await;
    let mut claims = issuer.claims();
    claims["aud"] = json!("api://ramen");
    assert_eq!(
        called_with(&gateway, &issuer.token(&claims)).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn without_rules_a_token_opens_nothing_and_keys_go_on() {
    let (issuer, worker, gateway) = bench().await;
    allow(&gateway, &worker, None);
    let closed = called_with(&gateway, &issuer.good()).await;
    assert_eq!(closed.status, StatusCode::FORBIDDEN);
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_refusal_says_where_to_sign_in() {
    let (issuer, _worker, gateway) = bench().await;
    let mut request = gateway.post(&call("echo"));
    request.headers_mut().remove("authorization");
    let got = gateway.send(request).await;
    let place = format!("{PUBLIC}/.well-known/oauth-protected-resource{PATH}");
    assert_eq!(
        (got.status, got.header("www-authenticate")),
        (
            StatusCode::UNAUTHORIZED,
            format!("Bearer realm=\"ramen\", resource_metadata=\"{place}\"").as_str()
        )
    );
    let describe = async |path: &str| {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        gateway.get(&path).await
    };
    let group = describe(PATH).await.json();
    assert_eq!(group["resource"], format!("{PUBLIC}{PATH}"));
    assert_eq!(group["authorization_servers"], json!([issuer.name()]));
    assert_eq!(describe("").await.json()["resource"], PUBLIC);
    assert_eq!(
        describe("/default/nowhere/mcp").await.status,
        StatusCode::OK
    );
    for path in ["/a\"b/c/mcp", "/../mcp", "/a/b/other", "/A/b/mcp"] {
        assert_eq!(describe(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_enough_is_told_where_to_get_another_and_a_key_is_not() {
    let issuer = Issuer::start().await;
    let oidc = issuer.oidc_with("  scopes: [tools, staff]\n");
    let (worker, gateway) = trusting(oidc).await;
    let nobody = RuleText {
        subjects: vec!["nobody".into()],
        tools: vec!["*".into()],
        ..RuleText::default()
    };
    let nobody = Arc::new(AccessRules::new(vec![nobody]).unwrap());
    let place = format!("{PUBLIC}/.well-known/oauth-protected-resource{PATH}");
    // Nobody with a token is let in, or nobody of these rules.
    for rules in [None, Some(nobody)] {
        allow(&gateway, &worker, rules);
        let got = called_with(&gateway, &issuer.good()).await;
        assert_eq!(
            (got.status, got.header("www-authenticate")),
            (
                StatusCode::FORBIDDEN,
                format!("Bearer realm=\"ramen\", error=\"insufficient_scope\", scope=\"tools staff\", resource_metadata=\"{place}\"").as_str()
            )
        );
    }
    let other = RuleText {
        keys: vec!["other".into()],
        tools: vec!["*".into()],
        ..RuleText::default()
    };
    let other = Arc::new(AccessRules::new(vec![other]).unwrap());
    allow(&gateway, &worker, Some(other));
    let key = gateway.call("echo").await;
    assert_eq!(
        (key.status, key.header("www-authenticate")),
        (StatusCode::FORBIDDEN, "")
    );
}

#[tokio::test]
async fn a_token_that_runs_out_ends_a_stream() {
    let (issuer, worker, gateway) = bench().await;
    // The keys are there: of what is left of the token nothing is lost on them.
    let good = called_with(&gateway, &issuer.good()).await;
    assert_eq!(good.status, StatusCode::OK);
    let mut claims = issuer.claims();
    // Ten seconds of skew are added to it.
    claims["exp"] = json!(now() - 5);
    let mut events = listening(&gateway, &issuer.token(&claims)).await;
    // Nothing happens but that time passes.
    ended(&mut events).await;
    drop(worker);
}

#[tokio::test]
async fn rules_that_shut_a_caller_out_end_a_call_in_mid_stream() {
    let (issuer, worker, gateway) = bench().await;
    let mut claims = issuer.claims();
    claims["groups"] = json!([]);
    let params = json!({"name": "hang", "arguments": {}, "_meta": {"progressToken": 1}});
    let mut request = gateway.modern("tools/call", params);
    let value = format!("Bearer {}", issuer.good()).parse().unwrap();
    request.headers_mut().insert("authorization", value);
    let mut events = Events::of(gateway.open(request).await);
    assert_eq!(
        events.next().await.unwrap()["method"],
        "notifications/progress"
    );
    eventually("the call runs", || worker.began() == 1).await;
    let echo_only = RuleText {
        subjects: vec!["*".into()],
        tools: vec!["echo".into()],
        ..RuleText::default()
    };
    let rules = AccessRules::new(vec![echo_only]).unwrap();
    allow(&gateway, &worker, Some(Arc::new(rules)));
    let mut last = events.next().await.unwrap();
    while last["method"] == "notifications/progress" {
        last = events.next().await.unwrap();
    }
    assert_eq!(
        last["error"]["message"],
        "the credential is not valid any more"
    );
    assert_eq!(events.next().await, None);
    eventually("the call is given up", || {
        worker
            .state
            .given_up
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    })
    .await;
}

#[tokio::test]
async fn limits_are_those_of_the_subject_whatever_its_token() {
    let (issuer, worker) = (Issuer::start().await, Worker::start().await);
    let limits = Limits {
        in_flight: 1,
        ..Limits::default()
    };
    let gateway = Running::trusting(&[worker.address], limits, issuer.oidc()).await;
    allow(&gateway, &worker, Some(rules()));
    let token_of = |subject: &str, id: &str| {
        let mut claims = issuer.claims();
        (claims["sub"], claims["jti"]) = (json!(subject), json!(id));
        issuer.token(&claims)
    };
    let (one, two, other) = (
        token_of("ann", "1"),
        token_of("ann", "2"),
        token_of("bob", "1"),
    );
    let waiting = called(&gateway, &one, "wait");
    let others = async {
        eventually("the call runs", || worker.began() == 1).await;
        let second = called_with(&gateway, &two).await.status;
        let third = called_with(&gateway, &other).await.status;
        worker.state.go.notify_one();
        (second, third)
    };
    let (first, others) = tokio::join!(waiting, others);
    assert_eq!(first.status, StatusCode::OK);
    assert_eq!(others, (StatusCode::TOO_MANY_REQUESTS, StatusCode::OK));
}

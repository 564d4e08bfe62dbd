//! Tokens of an issuer at the group endpoint, and what access rules make of them.

use std::sync::Arc;

use http::StatusCode;
use ramen_gateway::callers::Limits;
use ramen_group::AccessRules;
use ramen_group::access::RuleText;
use serde_json::{Value, json};

use crate::issuer::{Issuer, PUBLIC, Signer, now};
use crate::support::{Events, Got, KEY, PATH, Running, call, eventually, spec};
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
    let (issuer, worker) = (Issuer::start().await, Worker::start().await);
    let gateway = Running::trusting(&[worker.address], Limits::default(), issuer.oidc()).await;
    allow(&gateway, &worker, Some(rules()));
    (issuer, worker, gateway)
}

fn allow(gateway: &Running, worker: &Worker, access: Option<Arc<AccessRules>>) {
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.access = access;
    gateway.groups.set(&spec);
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
async fn sec_tokens_that_are_not_good_open_nothing() {
    let (issuer, worker, gateway) = bench().await;
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[name] = value;
        issuer.token(&claims)
    };
    let without = |name: &str| {
        let mut claims = issuer.claims();
        claims.as_object_mut().unwrap().remove(name);
        issuer.token(&claims)
    };
    let header = |header: Value| issuer.signer.sign(&header, &issuer.claims());
    let foreign = Signer::new("first");
    let good = issuer.good();
    let (message, signature) = good.rsplit_once('.').unwrap();
    let hmac = json!({"alg": "HS256", "typ": "JWT", "kid": "first"});
    let cases = [
        ("expired", with("exp", json!(now() - 11))),
        ("expired long ago", with("exp", json!(0))),
        ("no end", without("exp")),
        ("an end that is no time", with("exp", json!("tomorrow"))),
        ("not yet", with("nbf", json!(now() + 60))),
        (
            "another audience",
            with("aud", json!("https://other.example")),
        ),
        (
            "an audience that begins alike",
            with("aud", json!(format!("{PUBLIC}.evil.example"))),
        ),
        (
            "another group",
            with("aud", json!(format!("{PUBLIC}/default/other/mcp"))),
        ),
        ("no audience", without("aud")),
        (
            "another issuer",
            with("iss", json!("https://login.example")),
        ),
        (
            "almost the issuer",
            with("iss", json!(format!("{}/", issuer.name()))),
        ),
        ("two issuers", with("iss", json!([issuer.name()]))),
        ("no issuer", without("iss")),
        ("nobody", without("sub")),
        (
            "a key of somebody else",
            foreign.sign(&json!({"alg": "ES256", "kid": "first"}), &issuer.claims()),
        ),
        ("none", header(json!({"alg": "none", "kid": "first"}))),
        (
            "none, unsigned",
            format!(
                "{}.",
                header(json!({"alg": "none"})).rsplit_once('.').unwrap().0
            ),
        ),
        ("a secret", header(hmac)),
        (
            "another algorithm",
            header(json!({"alg": "ES384", "kid": "first"})),
        ),
        (
            "an extension that has to be understood",
            header(json!({"alg": "ES256", "kid": "first", "crit": ["x"], "x": 1})),
        ),
        (
            "a token of logout",
            header(json!({"alg": "ES256", "kid": "first", "typ": "logout+jwt"})),
        ),
        (
            "a key of its own",
            foreign.sign(
                &json!({"alg": "ES256", "jwk": foreign.jwk()}),
                &issuer.claims(),
            ),
        ),
        ("no signature", format!("{message}.")),
        (
            "a signature of something else",
            format!("{}x.{signature}", &message[..message.len() - 1]),
        ),
        ("no token", "a.b.c".to_owned()),
        ("dots", "..".to_owned()),
    ];
    for (what, token) in cases {
        let got = called_with(&gateway, &token).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{what}");
        assert!(
            got.header("www-authenticate").contains("invalid_token"),
            "{what}"
        );
    }
    assert_eq!(worker.began(), 0);
    assert_eq!(called_with(&gateway, &good).await.status, StatusCode::OK);
}

#[tokio::test]
async fn clocks_may_be_apart_as_far_as_the_settings_say() {
    let (issuer, _worker, gateway) = bench().await;
    let mut claims = issuer.claims();
    claims["exp"] = json!(now() - 3);
    claims["nbf"] = json!(now() + 3);
    assert_eq!(
        called_with(&gateway, &issuer.token(&claims)).await.status,
        StatusCode::OK
    );
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
    let (issuer, worker) = (Issuer::start().await, Worker::start().await);
    let oidc = issuer.oidc_with("  audiences: ['api://ramen']\n");
    let gateway = Running::trusting(&[worker.address], Limits::default(), oidc).await;
    allow(&gateway, &worker, Some(rules()));
    let mut claims = issuer.claims();
    claims["aud"] = json!("api://ramen");
    assert_eq!(
        called_with(&gateway, &issuer.token(&claims)).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn without_rules_a_token_opens_nothing_and_a_group_that_is_not_there_looks_the_same() {
    let (issuer, worker, gateway) = bench().await;
    allow(&gateway, &worker, None);
    let closed = called_with(&gateway, &issuer.good()).await;
    let mut nowhere = gateway.post(&call("echo"));
    *nowhere.uri_mut() = "/default/nowhere/mcp".parse().unwrap();
    let value = format!("Bearer {}", issuer.good()).parse().unwrap();
    nowhere.headers_mut().insert("authorization", value);
    let mut claims = issuer.claims();
    claims["aud"] = json!(PUBLIC);
    let nowhere = gateway.send(nowhere).await;
    assert_eq!(
        (closed.status, nowhere.status),
        (StatusCode::FORBIDDEN, StatusCode::FORBIDDEN)
    );
    assert_eq!(closed.body, nowhere.body);
    assert_eq!(worker.began(), 0);
    assert_eq!(
        gateway.call("echo").await.status,
        StatusCode::OK,
        "keys go on"
    );
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
async fn a_new_key_of_the_issuer_is_fetched_once_and_foreign_names_do_not_flood_it() {
    let (issuer, _worker, gateway) = bench().await;
    assert_eq!(
        called_with(&gateway, &issuer.good()).await.status,
        StatusCode::OK
    );
    let second = Signer::new("second");
    issuer.show(vec![issuer.signer.jwk(), second.jwk()]);
    let token = second.sign(&json!({"alg": "ES256", "kid": "second"}), &issuer.claims());
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    assert_eq!(issuer.fetched(), 2);
    for n in 0..20 {
        let header = json!({"alg": "ES256", "kid": format!("unknown {n}")});
        let token = second.sign(&header, &issuer.claims());
        assert_eq!(
            called_with(&gateway, &token).await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    assert_eq!(issuer.fetched(), 2);
}

#[tokio::test]
async fn in_an_outage_the_keys_at_hand_go_on_and_without_any_it_is_503() {
    let (issuer, _worker, gateway) = bench().await;
    issuer.fail(true);
    let got = called_with(&gateway, &issuer.good()).await;
    assert_eq!(
        (got.status, got.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "1")
    );
    issuer.fail(false);
    while called_with(&gateway, &issuer.good()).await.status != StatusCode::OK {
        tokio::task::yield_now().await;
    }
    issuer.fail(true);
    let mut claims = issuer.claims();
    claims["jti"] = json!("a token that was not seen before");
    assert_eq!(
        called_with(&gateway, &issuer.token(&claims)).await.status,
        StatusCode::OK
    );
    // It may be signed with a new key: nobody can tell.
    let second = Signer::new("second");
    let token = second.sign(&json!({"alg": "ES256", "kid": "second"}), &issuer.claims());
    assert_eq!(
        called_with(&gateway, &token).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test]
async fn a_key_that_the_issuer_takes_back_proves_nothing_any_more() {
    let (issuer, _worker, gateway) = bench().await;
    let token = issuer.good();
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    let second = Signer::new("second");
    issuer.show(vec![second.jwk()]);
    let other = second.sign(&json!({"alg": "ES256", "kid": "second"}), &issuer.claims());
    assert_eq!(called_with(&gateway, &other).await.status, StatusCode::OK);
    assert_eq!(
        called_with(&gateway, &token).await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn an_issuer_that_names_another_in_its_description_is_not_believed() {
    let (issuer, _worker, gateway) = bench().await;
    issuer.lie();
    let got = called_with(&gateway, &issuer.good()).await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn sec_two_credentials_or_one_in_the_query_are_none() {
    let (issuer, _worker, gateway) = bench().await;
    let token = issuer.good();
    let mut twice = gateway.post(&call("echo"));
    let value: http::HeaderValue = format!("Bearer {token}").parse().unwrap();
    twice.headers_mut().insert("authorization", value.clone());
    twice.headers_mut().append("authorization", value);
    assert_eq!(gateway.send(twice).await.status, StatusCode::UNAUTHORIZED);
    let mut query = gateway.post(&call("echo"));
    query.headers_mut().remove("authorization");
    *query.uri_mut() = format!("{PATH}?access_token={token}").parse().unwrap();
    assert_eq!(gateway.send(query).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_token_that_runs_out_ends_a_stream() {
    let (issuer, worker, gateway) = bench().await;
    let mut claims = issuer.claims();
    // Ten seconds of skew are added to it.
    claims["exp"] = json!(now() - 8);
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut request = gateway.modern("subscriptions/listen", params);
    let value = format!("Bearer {}", issuer.token(&claims)).parse().unwrap();
    request.headers_mut().insert("authorization", value);
    let mut events = Events::of(gateway.open(request).await);
    let first = events.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    // Nothing happens but that time passes.
    assert!(events.next().await.unwrap()["result"].is_object());
    assert_eq!(events.next().await, None);
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

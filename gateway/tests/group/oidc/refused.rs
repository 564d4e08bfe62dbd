//! Tokens that are not good.

use super::*;
use crate::logs::Log;

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
async fn sec_nothing_of_a_token_is_logged() {
    let (log, _logging) = Log::begin();
    let (issuer, worker, gateway) = bench().await;
    let mut tokens = vec![issuer.good()];
    for (name, value) in [
        ("exp", json!(0)),
        ("aud", json!("https://other.example")),
        ("iss", json!("https://login.example")),
        ("groups", json!(["nobody"])),
    ] {
        let mut claims = issuer.claims();
        claims[name] = value;
        tokens.push(issuer.token(&claims));
    }
    tokens.push(Signer::new("first").sign(&issuer.signer.header(), &issuer.claims()));
    for token in &tokens {
        called(&gateway, token, "hidden").await;
    }
    allow(&gateway, &worker, None);
    called_with(&gateway, &tokens[0]).await;
    issuer.fail(true);
    let unknown = Signer::new("second");
    tokens.push(unknown.sign(&unknown.header(), &issuer.claims()));
    called_with(&gateway, tokens.last().unwrap()).await;
    let text = log.text();
    assert!(text.contains("keys cannot be fetched"), "the log is read");
    // The client of the test speaks HTTP in this process too, and logs what it sends.
    let ours: Vec<_> = text
        .lines()
        .filter(|line| line.contains("ramen_gateway"))
        .collect();
    for part in tokens.iter().flat_map(|token| token.split('.').skip(1)) {
        assert!(!ours.iter().any(|line| line.contains(part)), "{part}");
    }
}

//! Each algorithm with a real key, and every way to pretend one.

use super::*;
use crate::signer::{hmac, message};

const ALWAYS: [&str; 5] = ["RS256", "PS256", "ES256", "ES384", "EdDSA"];
const ON_DEMAND: [&str; 4] = ["RS384", "RS512", "PS384", "PS512"];

fn all() -> Vec<Signer> {
    let names = ALWAYS.iter().chain(&ON_DEMAND);
    names.map(|name| Signer::of(name, name)).collect()
}

fn jwks(signers: &[Signer]) -> Vec<Value> {
    signers.iter().map(Signer::jwk).collect()
}

/// A gateway that takes every algorithm, and an issuer that has a key of each.
async fn open_to_all(issuer: &Issuer) -> (Worker, Running, Vec<Signer>) {
    let names = [ALWAYS.as_slice(), &ON_DEMAND].concat().join(", ");
    let oidc = issuer.oidc_with(&format!("  algorithms: [{names}]\n"));
    let (worker, gateway) = trusting(oidc).await;
    let signers = all();
    issuer.show(jwks(&signers));
    (worker, gateway, signers)
}

fn named(signers: &[Signer], algorithm: &str) -> usize {
    signers
        .iter()
        .position(|signer| signer.algorithm == algorithm)
        .unwrap()
}

/// A token whose signature was changed in its middle.
fn broken(token: &str) -> String {
    let (message, signature) = token.rsplit_once('.').unwrap();
    let middle = signature.len() / 2;
    let other = if &signature[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    let (head, tail) = (&signature[..middle], &signature[middle + 1..]);
    format!("{message}.{head}{other}{tail}")
}

#[tokio::test]
async fn each_algorithm_of_the_list_opens_with_a_real_key_and_with_no_broken_signature() {
    let issuer = Issuer::start().await;
    let (_worker, gateway, signers) = open_to_all(&issuer).await;
    for signer in &signers {
        let token = signer.sign(&signer.header(), &issuer.claims());
        let wrong = called_with(&gateway, &broken(&token)).await.status;
        assert_eq!(wrong, StatusCode::UNAUTHORIZED, "{}", signer.algorithm);
        let right = called_with(&gateway, &token).await.status;
        assert_eq!(right, StatusCode::OK, "{}", signer.algorithm);
    }
}

#[tokio::test]
async fn an_algorithm_that_is_not_in_the_list_opens_nothing_whatever_its_key() {
    let issuer = Issuer::start().await;
    let oidc = issuer.oidc();
    let (_worker, gateway) = trusting(Arc::clone(&oidc)).await;
    let signers = all();
    issuer.show(jwks(&signers));
    let opens = async |allowed: &[&str]| {
        for signer in &signers {
            let mut claims = issuer.claims();
            claims["jti"] = json!(allowed.len());
            let token = signer.sign(&signer.header(), &claims);
            let opened = called_with(&gateway, &token).await.status == StatusCode::OK;
            let name = signer.algorithm.as_str();
            assert_eq!(opened, allowed.contains(&name), "{name} of {allowed:?}");
        }
    };
    opens(&ALWAYS).await;
    oidc.set(issuer.settings("  algorithms: [ES384, PS512]\n"));
    opens(&["ES384", "PS512"]).await;
}

#[tokio::test]
async fn sec_a_key_checks_no_other_algorithm_than_its_own() {
    let issuer = Issuer::start().await;
    let (_worker, gateway, signers) = open_to_all(&issuer).await;
    for (key, other) in [
        // One key, signed rightly in a way that it is not for.
        ("RS256", "PS256"),
        ("PS256", "RS256"),
        ("RS256", "RS512"),
        // Another kind of key.
        ("RS256", "ES256"),
        ("ES256", "RS256"),
        ("ES256", "ES384"),
        ("ES384", "ES256"),
        ("ES256", "EdDSA"),
        ("EdDSA", "ES256"),
    ] {
        let signer = &signers[named(&signers, other)];
        let header = json!({"alg": other, "kid": key});
        let token = signer.sign(&header, &issuer.claims());
        let got = called_with(&gateway, &token).await.status;
        assert_eq!(got, StatusCode::UNAUTHORIZED, "{other} with {key}");
    }
}

#[tokio::test]
async fn a_key_that_does_not_say_what_it_is_for_does_all_of_its_kind() {
    let issuer = Issuer::start().await;
    let oidc = issuer.oidc_with("  algorithms: [RS256, PS384]\n");
    let (_worker, gateway) = trusting(oidc).await;
    let rsa = ["RS256", "PS384"].map(|algorithm| Signer::of("RS256", algorithm));
    issuer.show(vec![rsa[0].jwk_for_any()]);
    for signer in &rsa {
        let header = json!({"alg": signer.algorithm});
        let token = signer.sign(&header, &issuer.claims());
        let header = json!({"alg": signer.algorithm, "kid": "RS256"});
        let named = signer.sign(&header, &issuer.claims());
        for token in [token, named] {
            let got = called_with(&gateway, &token).await.status;
            assert_eq!(got, StatusCode::OK, "{}", signer.algorithm);
        }
    }
}

#[tokio::test]
async fn sec_a_public_key_is_no_secret_to_sign_with() {
    let issuer = Issuer::start().await;
    let (_worker, gateway) = trusting(issuer.oidc()).await;
    let (ec, rsa) = (Signer::of("ec", "ES256"), Signer::of("rsa", "RS256"));
    let secret = json!({"kty": "oct", "kid": "oct", "alg": "HS256", "k": "c2VjcmV0"});
    issuer.show(vec![ec.jwk(), rsa.jwk_for_any(), secret]);
    let decoded = |jwk: &Value, member: &str| {
        use base64::Engine as _;
        let text = jwk[member].as_str().unwrap();
        base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(text)
            .unwrap()
    };
    let point = [vec![4], decoded(&ec.jwk(), "x"), decoded(&ec.jwk(), "y")].concat();
    let secrets = [
        ("ec", point),
        ("ec", ec.jwk().to_string().into_bytes()),
        ("rsa", decoded(&rsa.jwk(), "n")),
        ("rsa", rsa.jwk()["n"].as_str().unwrap().as_bytes().to_vec()),
        ("oct", b"secret".to_vec()),
        ("ec", Vec::new()),
    ];
    for (kid, secret) in secrets {
        for header in [
            json!({"alg": "HS256", "kid": kid}),
            json!({"alg": "HS256"}),
            // The tag of a secret, called a signature.
            json!({"alg": "ES256", "kid": kid}),
            json!({"alg": "RS256", "kid": kid}),
        ] {
            let token = hmac(&secret, &header, &issuer.claims());
            let got = called_with(&gateway, &token).await.status;
            assert_eq!(got, StatusCode::UNAUTHORIZED, "{header}");
        }
    }
    let good = rsa.sign(&rsa.header(), &issuer.claims());
    assert_eq!(called_with(&gateway, &good).await.status, StatusCode::OK);
}

#[tokio::test]
async fn of_two_keys_with_one_name_either_opens_and_no_third() {
    let issuer = Issuer::start().await;
    let (_worker, gateway) = trusting(issuer.oidc()).await;
    let signers = [Signer::new("k"), Signer::of("k", "RS256"), Signer::new("k")];
    issuer.show(jwks(&signers));
    for signer in &signers {
        let token = signer.sign(&signer.header(), &issuer.claims());
        assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    }
    let third = Signer::new("k");
    let token = third.sign(&third.header(), &issuer.claims());
    assert_eq!(
        called_with(&gateway, &token).await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn a_token_that_names_no_key_is_tried_with_few() {
    let issuer = Issuer::start().await;
    let (_worker, gateway) = trusting(issuer.oidc()).await;
    let signers: Vec<_> = (0..9).map(|n| Signer::new(&n.to_string())).collect();
    issuer.show(jwks(&signers));
    let status = async |signer: &Signer, header: Value| {
        let token = signer.sign(&header, &issuer.claims());
        called_with(&gateway, &token).await.status
    };
    let nameless = json!({"alg": "ES256"});
    assert_eq!(status(&signers[7], nameless.clone()).await, StatusCode::OK);
    let (ninth, named) = (&signers[8], signers[8].header());
    assert_eq!(status(ninth, nameless).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(ninth, named).await, StatusCode::OK);
}

#[tokio::test]
async fn sec_an_extension_that_has_to_be_understood_opens_nothing() {
    let (issuer, _worker, gateway) = bench().await;
    for (crit, extra) in [
        (json!(["exp"]), json!({"exp": now() + 300})),
        (json!(["b64"]), json!({"b64": false})),
        (
            json!(["http://example.com/x"]),
            json!({"http://example.com/x": 1}),
        ),
        (json!([]), json!({})),
        (json!("exp"), json!({})),
    ] {
        let mut header = issuer.signer.header();
        header["crit"] = crit.clone();
        for (name, value) in extra.as_object().unwrap() {
            header[name] = value.clone();
        }
        let token = issuer.signer.sign(&header, &issuer.claims());
        let got = called_with(&gateway, &token).await.status;
        assert_eq!(got, StatusCode::UNAUTHORIZED, "{crit}");
    }
}

#[tokio::test]
async fn sec_a_token_that_is_too_large_is_not_looked_at() {
    let (issuer, worker, gateway) = bench().await;
    let sized = |bytes: usize| {
        let mut claims = issuer.claims();
        claims["pad"] = json!("x".repeat(bytes));
        issuer.token(&claims)
    };
    let large = sized(6_200);
    assert!(
        large.len() > 8_192 && large.len() < 9_000,
        "{}",
        large.len()
    );
    let got = called_with(&gateway, &large).await.status;
    assert_eq!(got, StatusCode::UNAUTHORIZED);
    assert_eq!(issuer.fetched(), 0, "nobody was asked for a key");
    let huge = called_with(&gateway, &sized(20_000)).await.status;
    assert_eq!(huge, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let fits = sized(5_000);
    assert!(fits.len() > 6_000, "{}", fits.len());
    assert_eq!(called_with(&gateway, &fits).await.status, StatusCode::OK);
    assert_eq!(worker.began(), 1);
}

#[tokio::test]
async fn sec_members_that_are_there_twice_do_not_count_as_the_better_one() {
    let (issuer, _worker, gateway) = bench().await;
    let good = issuer.good();
    let signature = good.rsplit_once('.').unwrap().1;
    let claims = issuer.claims();
    for header in [
        r#"{"alg":"none","alg":"ES256","kid":"first"}"#,
        r#"{"alg":"ES256","alg":"none","kid":"first"}"#,
    ] {
        use base64::Engine as _;
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let claims = engine.encode(claims.to_string());
        let token = format!("{}.{claims}.{signature}", engine.encode(header));
        let got = called_with(&gateway, &token).await.status;
        assert_eq!(got, StatusCode::UNAUTHORIZED, "{header}");
    }
    let unsigned = message(&json!({"alg": "NONE"}), &claims);
    let got = called_with(&gateway, &format!("{unsigned}.")).await.status;
    assert_eq!(got, StatusCode::UNAUTHORIZED);
}

/// Signed long ago, by a key that is thrown away.
const WEAK_KEY: &str = "5JI-WezKntOxpG0ahgCwo4jxMJWJ30cJALGwhuJqCSa56ZQF2jRfrXPGlfJ253pcwi8UZBi0YocTtX9bzW8fB7KawOnUOw190bipzWzNvn5WNEahkj-LFrHob3qFDQkKeBQsyRMIjgRJFO_WILDKVkELEojpArIVuFUVHo5cWkk";
const WEAK_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6IndlYWsifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJzdWIiOiJhbm4iLCJhdWQiOiJodHRwczovL21jcC5leGFtcGxlLmNvbSIsImV4cCI6NDEwMjQ0NDgwMCwiZ3JvdXBzIjpbInN0YWZmIl19.3FnBnb31RqkMWH1yk5ERtG2J8HP8BCogUroJTIOYK2Qmh-IBsHH_3lTeg58iNExv9KKtjDDijeceaktbBgvaENFr28iKftrFefIgDviRn6PVRv5wgvpdXkzXx45zy9k0HmMRRBnTbrp8SGOReCFy--3pOChDH_LYEykGVPNGa-4";

#[tokio::test]
async fn sec_an_rsa_key_of_1024_bits_proves_nothing() {
    let issuer = Issuer::start().await;
    let text = format!(
        "publicUrl: {PUBLIC}\nissuers: [{{issuer: 'https://login.example', jwksUri: '{}/keys'}}]\n",
        issuer.name()
    );
    let settings = ramen_gateway::oidc::Settings::parse(&text, None).unwrap();
    let (_worker, gateway) = trusting(Arc::new(Oidc::new(settings))).await;
    let strong = Signer::of("strong", "RS256");
    let weak = json!({"kty": "RSA", "kid": "weak", "n": WEAK_KEY, "e": "AQAB"});
    issuer.show(vec![weak, strong.jwk()]);
    let got = called_with(&gateway, WEAK_TOKEN).await.status;
    assert_eq!(got, StatusCode::UNAUTHORIZED);
    let mut claims = issuer.claims();
    claims["iss"] = json!("https://login.example");
    let token = strong.sign(&strong.header(), &claims);
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
}

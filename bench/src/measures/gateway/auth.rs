//! What the check of a caller takes: of a key, and of a token that was verified before.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use ramen_gateway::access::Entry;
use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::{Door, ONLY_POST};
use ramen_gateway::oidc::Settings;
use ramen_gateway::origin::Sites;
use ramen_gateway::{GroupName, GroupSpec, Groups, Oidc};
use ramen_group::access::RuleText;
use ramen_group::{AccessRules, AddressRule, CidrSet};
use ramen_redact::KeySet;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::lab::Lab;
use crate::report::Findings;
use crate::servers::random_key;
use crate::stats;

/// Keys of the group, and people who are signed in: more than any has.
const CALLERS: usize = 100;
/// Groups in each token.
const GROUPS: usize = 20;
/// Rules of the group, all of which are looked at.
const RULES: usize = 16;
const CHECKS: u32 = 20_000;
const PATH: &str = "/default/bench/mcp";
const PUBLIC: &str = "http://127.0.0.1:8080";

/// The whole door before the body: headers, credential, rules, address, `Host`, rate. The slower kind of credential
/// counts.
pub(super) async fn callers(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let keys: Vec<String> = (0..CALLERS)
        .map(|_| random_key("rmk_"))
        .collect::<Result<_, _>>()?;
    let issuer = Issuer::start().await?;
    let tokens: Vec<String> = (0..CALLERS)
        .map(|n| issuer.token(n))
        .collect::<Result<_, _>>()?;
    let oidc = Oidc::new(issuer.settings()?);
    oidc.warm().await;
    let groups = group(&keys)?;
    let group = groups.get("default", "bench").context("the group")?;
    let access = group.access();
    let entry = Entry {
        access: Some(&access),
        oidc: Some(&oidc),
        path: PATH,
    };
    let door = Door {
        address: AddressRule::default(),
        sites: Sites {
            loopback: true,
            ..Sites::default()
        },
        callers: Callers::new(Limits::default()),
    };
    let (keys, tokens) = (requests(&keys)?, requests(&tokens)?);
    let time = async |requests: &[Parts], checks: u32| -> anyhow::Result<f64> {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let started = Instant::now();
        for request in requests.iter().cycle().take(checks as usize) {
            let entered = door.enter(request, peer, &entry, &access.ranges, ONLY_POST);
            ensure!(black_box(entered.await).is_ok(), "a good caller is refused");
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(checks))
    };
    let first = time(&tokens, u32::try_from(CALLERS)?).await?;
    let (mut of_keys, mut of_tokens) = (Vec::new(), Vec::new());
    for _ in 0..lab.rounds {
        of_keys.push(time(&keys, CHECKS).await?);
        of_tokens.push(time(&tokens, CHECKS).await?);
    }
    let (key, token) = (stats::median(&of_keys), stats::median(&of_tokens));
    let note = format!(
        "a key among {CALLERS}: {key:.1}; a token seen before: {token:.1}, the first time (ES256): {first:.0}; with {RULES} rules and all that is judged before the body"
    );
    let slower = if key > token { of_keys } else { of_tokens };
    findings.add("auth_us", slower, note);
    Ok(())
}

/// A group with these keys, and rules of which the last one is about everybody.
fn group(keys: &[String]) -> anyhow::Result<Groups> {
    let names = |name: String| vec![name];
    let mut rules: Vec<_> = (1..RULES - 1)
        .map(|n| RuleText {
            groups: names(format!("team-{}", n * GROUPS)),
            tools: names(format!("tool-{n}")),
            ..RuleText::default()
        })
        .collect();
    rules.push(RuleText {
        keys: names("*".to_owned()),
        tools: names("*".to_owned()),
        ..RuleText::default()
    });
    rules.push(RuleText {
        groups: names(format!("team-{}", GROUPS - 1)),
        tools: names("*".to_owned()),
        ..RuleText::default()
    });
    let rules = AccessRules::new(rules).map_err(|faults| anyhow!("{faults:?}"))?;
    let groups = Groups::default();
    groups.set(&GroupSpec {
        name: GroupName {
            namespace: "default".to_owned(),
            name: "bench".to_owned(),
        },
        keys: KeySet::from_lines(&keys.join("\n")),
        access: Some(Arc::new(rules)),
        ranges: CidrSet::parse_list("127.0.0.0/8").ok().context("a range")?,
        worker_key: "rmk_worker".into(),
        workers: Vec::new(),
        upstreams: Vec::new(),
    });
    Ok(groups)
}

/// A request of each of these credentials.
fn requests(credentials: &[String]) -> anyhow::Result<Vec<Parts>> {
    let requests = credentials.iter().map(|credential| {
        let request = http::Request::post(PATH)
            .header("host", "127.0.0.1:8080")
            .header("authorization", format!("Bearer {credential}"))
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("content-length", "120")
            .body(())?;
        Ok(request.into_parts().0)
    });
    requests.collect()
}

/// Signs tokens, and shows its key.
struct Issuer {
    url: String,
    pair: EcdsaKeyPair,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    async fn start() -> anyhow::Result<Self> {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let no_key = |_| anyhow!("no key to sign with");
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(no_key)?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random)
            .map_err(|error| anyhow!("no key to sign with: {error}"))?;
        // After the octet that says that both coordinates follow.
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": part(x), "y": part(y)});
        let keys = json!({ "keys": [key] }).to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let app =
            axum::Router::new().route("/keys", axum::routing::get(move || async move { keys }));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, pair, task })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let url = &self.url;
        let text =
            format!("publicUrl: {PUBLIC}\nissuers: [{{issuer: '{url}', jwksUri: '{url}/keys'}}]\n");
        Settings::parse(&text, None).map_err(|faults| anyhow!(faults.join("; ")))
    }

    /// A token of one person, as large as they are where people have roles.
    fn token(&self, n: usize) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let groups: Vec<_> = (0..GROUPS).map(|n| format!("team-{n}")).collect();
        let claims = json!({"iss": self.url, "sub": format!("person-{n}"), "aud": PUBLIC, "iat": now, "exp": now + 3600, "groups": groups,
            "scope": "openid profile email tools", "email": format!("person-{n}@example.com"), "email_verified": true,
            "azp": "a-client-of-the-gateway", "jti": random_key("")?});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": "k"});
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self
            .pair
            .sign(&SystemRandom::new(), message.as_bytes())
            .map_err(|_| anyhow!("cannot sign"))?;
        Ok(format!(
            "{message}.{}",
            URL_SAFE_NO_PAD.encode(signature.as_ref())
        ))
    }
}

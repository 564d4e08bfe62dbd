use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use ramen_redact::Secret;
use serde_json::{Value, json};
use sha2::{Sha256, Sha512};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::endpoint::{MAX_BODY, Place, Refusal, judge};
use super::payload::Said;
use super::receivers::Receiver;
use super::sender::{Doubt, Sender};
use super::*;

const NEW: &str = "the-newer-secret";
const OLD: &str = "the-older-secret";
const NOW: u64 = 1_800_000_000;

fn mac(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

fn headers(pairs: &[(&str, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn receiver(sender: Sender) -> Receiver {
    Receiver {
        sender,
        secrets: vec![Secret::from(NEW), Secret::from(OLD)],
    }
}

/// A hook as a sender makes it, signed with a secret.
fn hook(sender: Sender, secret: &str) -> (Vec<(&'static str, String)>, Vec<u8>) {
    let repository = json!({
        "clone_url": "https://forge.example/team/calc.git",
        "ssh_url": "git@forge.example:team/calc.git",
    });
    let push = json!({"ref": "refs/heads/main", "deleted": false, "repository": repository});
    let (mut pairs, body) = match sender {
        Sender::GitHub => (vec![("x-github-event", "push")], push),
        Sender::Gitea => (vec![("x-gitea-event", "push")], push),
        Sender::Forgejo => (vec![("x-forgejo-event", "push")], push),
        Sender::GitLab => (
            vec![("x-gitlab-event", "Push Hook")],
            json!({"checkout_sha": null, "project": {
                "git_http_url": "https://forge.example/team/calc.git",
            }}),
        ),
        Sender::Bitbucket => (
            vec![("x-event-key", "repo:push")],
            json!({"push": {"changes": []}, "repository": {"links": {
                "html": {"href": "https://forge.example/team/calc"},
                "clone": [{"href": "https://forge.example/scm/team/calc.git"}, 7, {}],
            }}}),
        ),
        Sender::AzureDevOps => (
            vec![],
            json!({"eventType": "git.push", "resource": {
                "refUpdates": [],
                "repository": {"remoteUrl": "https://forge.example/team/calc"},
            }}),
        ),
        Sender::Generic => (
            vec![],
            json!({"repository": "https://forge.example/team/calc"}),
        ),
    };
    let body = body.to_string().into_bytes();
    pairs.push(("content-type", "application/json; charset=utf-8"));
    let mut pairs: Vec<_> = pairs.into_iter().map(|(n, v)| (n, v.to_owned())).collect();
    pairs.push(match sender {
        Sender::GitHub => (
            "x-hub-signature-256",
            format!("sha256={}", mac(secret, &body)),
        ),
        Sender::Bitbucket => ("x-hub-signature", format!("sha256={}", mac(secret, &body))),
        Sender::Gitea => ("x-gitea-signature", mac(secret, &body)),
        Sender::Forgejo => ("x-forgejo-signature", mac(secret, &body)),
        Sender::GitLab => ("x-gitlab-token", secret.to_owned()),
        Sender::AzureDevOps => {
            let pair = STANDARD.encode(format!("ramen:{secret}"));
            ("authorization", format!("Basic {pair}"))
        }
        Sender::Generic => ("x-signature", format!("sha256={}", mac(secret, &body))),
    });
    (pairs, body)
}

fn signature(pairs: &mut [(&'static str, String)]) -> &mut (&'static str, String) {
    pairs.last_mut().unwrap()
}

fn calc() -> Said {
    Said::Push(vec![
        Repository::parse("https://forge.example/team/calc").unwrap(),
    ])
}

#[test]
fn each_sender_is_believed_with_either_secret_and_with_no_other() {
    for sender in Sender::ALL {
        let believes = receiver(sender);
        for secret in [NEW, OLD] {
            let (pairs, body) = hook(sender, secret);
            let said = judge(Some(&believes), &headers(&pairs), &body, NOW);
            assert_eq!(said, Ok(calc()), "{sender:?}");
        }
        let wrong = |pairs: &[(&str, String)], body: &[u8], what: &str| {
            let said = judge(Some(&believes), &headers(pairs), body, NOW);
            assert_eq!(said, Err(Refusal::Unproved), "{sender:?}: {what}");
        };
        let (mut pairs, body) = hook(sender, "another-secret");
        wrong(&pairs, &body, "another secret");
        signature(&mut pairs).1 = String::new();
        wrong(&pairs, &body, "an empty signature");
        pairs.pop();
        wrong(&pairs, &body, "no signature");
        let (mut pairs, body) = hook(sender, NEW);
        let again = signature(&mut pairs).clone();
        pairs.push(again);
        wrong(&pairs, &body, "two signatures");
        // A token says nothing about the body.
        if !matches!(sender, Sender::GitLab | Sender::AzureDevOps) {
            let (pairs, mut body) = hook(sender, NEW);
            body.push(b' ');
            wrong(&pairs, &body, "another body");
        }
        let unready = Receiver {
            sender,
            secrets: Vec::new(),
        };
        let (pairs, body) = hook(sender, "");
        let said = judge(Some(&unready), &headers(&pairs), &body, NOW);
        assert_eq!(said, Err(Refusal::NotReady), "{sender:?}");
        assert_eq!(
            judge(None, &headers(&pairs), &body, NOW),
            Err(Refusal::Unknown)
        );
        // An empty secret opens nothing, even if it came this far.
        let empty = [Secret::from("")];
        let proof = sender.verify(&headers(&pairs), &body, &empty, NOW);
        assert!(proof.is_err(), "{sender:?}");
    }
}

#[test]
fn a_hook_of_one_sender_is_none_of_another() {
    for from in Sender::ALL {
        for to in Sender::ALL {
            // Forgejo sends Gitea's header too, and takes it when it is alone.
            if from == to || (from, to) == (Sender::Gitea, Sender::Forgejo) {
                continue;
            }
            let (pairs, body) = hook(from, NEW);
            let said = judge(Some(&receiver(to)), &headers(&pairs), &body, NOW);
            assert_eq!(said, Err(Refusal::Unproved), "{from:?} -> {to:?}");
        }
    }
}

#[test]
fn the_old_sha1_header_and_a_second_header_rescue_nothing() {
    let (mut pairs, body) = hook(Sender::GitHub, NEW);
    let sha256 = signature(&mut pairs).1.clone();
    *signature(&mut pairs) = ("x-hub-signature", sha256);
    let said = judge(
        Some(&receiver(Sender::GitHub)),
        &headers(&pairs),
        &body,
        NOW,
    );
    assert_eq!(said, Err(Refusal::Unproved));

    let (mut pairs, body) = hook(Sender::Forgejo, "another-secret");
    pairs.push(("x-gitea-signature", mac(NEW, &body)));
    pairs.push(("x-hub-signature-256", format!("sha256={}", mac(NEW, &body))));
    let said = judge(
        Some(&receiver(Sender::Forgejo)),
        &headers(&pairs),
        &body,
        NOW,
    );
    assert_eq!(said, Err(Refusal::Unproved));
}

/// Headers of a Standard Webhook.
fn standard(key: &[u8], id: &str, time: &str, body: &[u8]) -> Vec<(&'static str, String)> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(format!("{id}.{time}.").as_bytes());
    mac.update(body);
    let mac = STANDARD.encode(mac.finalize().into_bytes());
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", time.to_owned()),
        ("webhook-signature", format!("v1,AAAA v1,{mac}")),
    ]
}

#[test]
fn gitlabs_signing_secret_covers_id_time_and_body() {
    let key = b"0123456789abcdef0123456789abcdef";
    let secrets = [Secret::new(format!("whsec_{}", STANDARD.encode(key)))];
    let verify = |pairs: &[(&str, String)], body: &[u8]| {
        Sender::GitLab.verify(&headers(pairs), body, &secrets, NOW)
    };
    let time = |offset: i64| NOW.checked_add_signed(offset).unwrap().to_string();
    for offset in [-300, 0, 300] {
        let pairs = standard(key, "msg_1", &time(offset), b"{}");
        assert_eq!(verify(&pairs, b"{}"), Ok(()), "{offset}");
        assert_eq!(verify(&pairs, b"{ }"), Err(Doubt::Wrong));
    }
    for offset in [-301, 301, -100_000] {
        let pairs = standard(key, "msg_1", &time(offset), b"{}");
        assert_eq!(verify(&pairs, b"{}"), Err(Doubt::Stale), "{offset}");
    }
    let mut moved = standard(key, "msg_1", &time(-301), b"{}");
    moved[1].1 = time(0);
    assert_eq!(verify(&moved, b"{}"), Err(Doubt::Wrong));
    let mut other = standard(key, "msg_1", &time(0), b"{}");
    other[0].1 = "msg_2".into();
    assert_eq!(verify(&other, b"{}"), Err(Doubt::Wrong));
    let odd = standard(key, "msg_1", "soon", b"{}");
    assert_eq!(verify(&odd, b"{}"), Err(Doubt::Stale));
    // A bad signature is not rescued by the token beside it.
    let mut both = standard(b"wrong", "msg_1", &time(0), b"{}");
    both.push(("x-gitlab-token", secrets[0].expose().clone()));
    assert_eq!(verify(&both, b"{}"), Err(Doubt::Wrong));
    // A secret without the prefix is taken as it is.
    let plain = [Secret::from("plain-signing-secret")];
    let pairs = standard(b"plain-signing-secret", "m", &time(0), b"{}");
    let proof = Sender::GitLab.verify(&headers(&pairs), b"{}", &plain, NOW);
    assert_eq!(proof, Ok(()));
}

#[test]
fn a_generic_hook_may_use_sha512_and_a_time() {
    let believes = receiver(Sender::Generic);
    let json = ("content-type", "application/json".to_owned());
    let mut mac512 = Hmac::<Sha512>::new_from_slice(NEW.as_bytes()).unwrap();
    mac512.update(b"{}");
    let mac512 = hex::encode(mac512.finalize().into_bytes());
    let verify =
        |pairs: &[(&str, String)], body: &[u8]| judge(Some(&believes), &headers(pairs), body, NOW);
    let pairs = [json.clone(), ("x-signature", format!("sha512={mac512}"))];
    assert_eq!(verify(&pairs, b"{}"), Ok(Said::Push(Vec::new())));
    for wrong in [
        format!("sha1={mac512}"),
        format!("sha256={mac512}"),
        mac512.clone(),
    ] {
        let pairs = [json.clone(), ("x-signature", wrong)];
        assert_eq!(verify(&pairs, b"{}"), Err(Refusal::Unproved));
    }
    // Nothing but "look now".
    let empty = [("x-signature", format!("sha256={}", mac(NEW, b"")))];
    assert_eq!(verify(&empty, b""), Ok(Said::Push(Vec::new())));
    let timed = |time: u64| {
        let text = format!("{time}.{{}}");
        [
            json.clone(),
            ("x-timestamp", time.to_string()),
            (
                "x-signature",
                format!("sha256={}", mac(NEW, text.as_bytes())),
            ),
        ]
    };
    assert!(verify(&timed(NOW - 60), b"{}").is_ok());
    assert_eq!(verify(&timed(NOW - 301), b"{}"), Err(Refusal::Unproved));
    // The time cannot be taken off a hook that has one.
    assert_eq!(
        verify(&[json, timed(NOW)[2].clone()], b"{}"),
        Err(Refusal::Unproved)
    );
}

#[test]
fn azure_takes_a_password_or_a_pair() {
    let basic =
        |pair: &str| headers(&[("authorization", format!("Basic {}", STANDARD.encode(pair)))]);
    let verify = |secret: &str, pair: &str| {
        Sender::AzureDevOps.verify(&basic(pair), b"", &[Secret::from(secret)], NOW)
    };
    assert_eq!(verify("long-password", "anybody:long-password"), Ok(()));
    assert_eq!(verify("me:long-password", "me:long-password"), Ok(()));
    for pair in [
        "you:long-password",
        "long-password",
        ":",
        "me:long-passwor",
        "me:",
    ] {
        assert!(verify("me:long-password", pair).is_err(), "{pair}");
    }
}

#[test]
fn only_json_is_read_and_only_pushes_count() {
    for sender in Sender::ALL {
        let (pairs, body) = hook(sender, NEW);
        let typed = |kind: Option<&str>| {
            let mut pairs = pairs.clone();
            let at = pairs
                .iter()
                .position(|(name, _)| *name == "content-type")
                .unwrap();
            match kind {
                Some(kind) => pairs[at].1 = kind.to_owned(),
                None => drop(pairs.remove(at)),
            }
            judge(Some(&receiver(sender)), &headers(&pairs), &body, NOW)
        };
        for kind in [
            None,
            Some("application/x-www-form-urlencoded"),
            Some("text/json"),
        ] {
            assert_eq!(typed(kind), Err(Refusal::MediaType), "{sender:?} {kind:?}");
        }
        assert!(typed(Some("Application/JSON")).is_ok());
    }
    for (sender, name, event) in [
        (Sender::GitHub, "x-github-event", "ping"),
        (Sender::GitHub, "x-github-event", "issues"),
        (Sender::Gitea, "x-gitea-event", "release"),
        (Sender::Forgejo, "x-forgejo-event", "star"),
        (Sender::GitLab, "x-gitlab-event", "Pipeline Hook"),
        (Sender::Bitbucket, "x-event-key", "diagnostics:ping"),
    ] {
        let (mut pairs, body) = hook(sender, NEW);
        pairs.iter_mut().find(|(n, _)| *n == name).unwrap().1 = event.to_owned();
        let said = judge(Some(&receiver(sender)), &headers(&pairs), &body, NOW);
        assert_eq!(said, Ok(Said::Other), "{sender:?} {event}");
    }
}

#[test]
fn a_path_names_a_receiver_and_perhaps_a_group() {
    let parse = |path: &str| Place::parse(path).map(|place| (place.receiver, place.group));
    assert_eq!(parse("/v1/hooks/acme"), Some(("acme".into(), None)));
    let group = GroupKey::new("ns", "g");
    assert_eq!(
        parse("/v1/hooks/acme/ns/g"),
        Some(("acme".into(), Some(group)))
    );
    for wrong in [
        "/",
        "/v1/hooks",
        "/v1/hooks/",
        "/v1/hooks/a/",
        "/v1/hooks/a/ns",
        "/v1/hooks/a/ns/",
        "/v1/hooks/a/ns/g/",
        "/v1/hooks/a/ns/g/x",
        "/v1/hooks/a%2f",
        "/v1/hooks//ns/g",
        "/v2/hooks/a",
    ] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

/// A signed hook with this body.
fn signed(sender: Sender, body: &[u8]) -> HeaderMap {
    let (mut pairs, _) = hook(sender, NEW);
    let (name, value) = signature(&mut pairs);
    *value = match *name {
        "x-gitea-signature" | "x-forgejo-signature" => mac(NEW, body),
        "x-gitlab-token" | "authorization" => value.clone(),
        _ => format!("sha256={}", mac(NEW, body)),
    };
    headers(&pairs)
}

#[test]
fn odd_payloads_are_no_faults_of_ours() {
    let odd = [
        json!({}),
        json!({"repository": null, "project": [], "resource": 7, "refUpdates": [], "commits": []}),
        json!({"repository": {"clone_url": 7, "links": {"clone": {}, "html": []}}}),
        json!({"repository": {"clone_url": "ext::sh -c x", "ssh_url": "file:///etc/passwd"}}),
        json!({"project": {"git_http_url": ""}, "repository": []}),
        json!({"eventType": "git.push", "resource": {"refUpdates": []}}),
    ];
    for sender in Sender::ALL {
        for value in &odd {
            let body = value.to_string().into_bytes();
            let said = judge(Some(&receiver(sender)), &signed(sender, &body), &body, NOW);
            let fine = matches!(&said, Ok(Said::Other)) || said == Ok(Said::Push(Vec::new()));
            assert!(fine, "{sender:?} {value}: {said:?}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for body in [
            &b"[]"[..],
            b"7",
            b"",
            b"\xff\xfe",
            b"{\"a\":",
            deep.as_bytes(),
        ] {
            if body.is_empty() && sender == Sender::Generic {
                continue;
            }
            let said = judge(Some(&receiver(sender)), &signed(sender, body), body, NOW);
            assert_eq!(said, Ok(Said::Unreadable), "{sender:?} {body:.20?}");
        }
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        Just(Value::from("https://forge.example/team/calc.git")),
    ];
    let name = prop_oneof![
        Just("repository"),
        Just("project"),
        Just("resource"),
        Just("links"),
        Just("clone"),
        Just("html"),
        Just("href"),
        Just("clone_url"),
        Just("git_http_url"),
        Just("remoteUrl"),
        Just("eventType"),
        Just("url"),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|fields| {
                fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect()
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_body_makes_it_panic(value in json_value(), bytes: Vec<u8>) {
        for sender in Sender::ALL {
            for body in [value.to_string().into_bytes(), bytes.clone()] {
                let _ = judge(Some(&receiver(sender)), &signed(sender, &body), &body, NOW);
            }
        }
    }

    #[test]
    fn no_header_makes_it_panic(value in "[ -~]{0,200}", path in "(/v1/hooks/)?[ -~]{0,60}", url in ".{0,60}") {
        let _ = (Place::parse(&path), Repository::parse(&url));
        for sender in Sender::ALL {
            let (pairs, body) = hook(sender, NEW);
            for at in 0..pairs.len() {
                let mut pairs = pairs.clone();
                pairs[at].1.clone_from(&value);
                let mut map = headers(&pairs);
                for name in ["webhook-signature", "webhook-id", "webhook-timestamp", "x-timestamp"] {
                    map.insert(name, HeaderValue::from_str(&value).unwrap());
                }
                let _ = judge(Some(&receiver(sender)), &map, &body, NOW);
                let _ = sender.delivery(&map);
            }
        }
    }
}

#[derive(Default)]
struct Known {
    looks: Mutex<Vec<GroupKey>>,
    counts: Mutex<Vec<String>>,
}

impl Groups for Known {
    fn all(&self) -> Vec<(GroupKey, String)> {
        vec![
            (
                GroupKey::new("a", "calc"),
                "git@forge.example:team/calc.git".into(),
            ),
            (
                GroupKey::new("b", "calc"),
                "https://forge.example/Team/calc".into(),
            ),
            (
                GroupKey::new("b", "other"),
                "https://forge.example/team/other".into(),
            ),
            (GroupKey::new("b", "odd"), "not an address".into()),
        ]
    }

    fn look(&self, group: &GroupKey) {
        self.looks.lock().unwrap().push(group.clone());
    }

    fn counted(&self, receiver: &str, outcome: &'static str) {
        self.counts
            .lock()
            .unwrap()
            .push(format!("{receiver} {outcome}"));
    }
}

struct Port {
    address: SocketAddr,
    known: Arc<Known>,
    _dir: TempDir,
}

impl Port {
    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("acme.github"), format!("{NEW}\n{OLD}\n")).unwrap();
        std::fs::write(dir.path().join("bare.github"), "").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let known = Arc::<Known>::default();
        let groups = Arc::clone(&known);
        let folder = dir.path().to_owned();
        tokio::spawn(serve(listener, folder, groups, CancellationToken::new()));
        Self {
            address,
            known,
            _dir: dir,
        }
    }

    async fn send(&self, method: &str, path: &str, pairs: &[(&str, String)], body: &[u8]) -> u16 {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        if !pairs.iter().any(|(name, _)| *name == "content-length") {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in pairs {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        // It may have had enough before the end.
        let _ = stream.write_all(body).await;
        let mut answer = vec![0; 64];
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer));
        let n = read.await.unwrap().unwrap_or(0);
        let head = String::from_utf8_lossy(&answer[..n]).into_owned();
        head.split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0)
    }

    async fn push(&self, path: &str, delivery: &str) -> u16 {
        let (mut pairs, body) = hook(Sender::GitHub, NEW);
        pairs.push(("x-github-delivery", delivery.to_owned()));
        self.send("POST", path, &pairs, &body).await
    }

    fn looks(&self) -> Vec<String> {
        let looks = std::mem::take(&mut *self.known.looks.lock().unwrap());
        looks.iter().map(ToString::to_string).collect()
    }
}

#[tokio::test]
async fn a_hook_makes_the_groups_of_its_repository_look() {
    let port = Port::open().await;
    assert_eq!(port.push("/v1/hooks/acme", "1").await, 202);
    assert_eq!(port.looks(), ["a/calc", "b/calc"]);
    // A replay is harmless, and not even that.
    assert_eq!(port.push("/v1/hooks/acme", "1").await, 200);
    assert!(port.looks().is_empty());
    assert_eq!(port.push("/v1/hooks/acme/b/other", "2").await, 202);
    assert_eq!(port.looks(), ["b/other"]);
    // Whether there is such a group is not told.
    assert_eq!(port.push("/v1/hooks/acme/b/none", "3").await, 202);
    assert!(port.looks().is_empty());
    let counts = port.known.counts.lock().unwrap().clone();
    let wanted = [
        "acme accepted",
        "acme ignored",
        "acme accepted",
        "acme unmatched",
    ];
    assert_eq!(counts, wanted);
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_rules() {
    let port = Port::open().await;
    let (good, body) = hook(Sender::GitHub, NEW);
    let (bad, _) = hook(Sender::GitHub, "another-secret");
    let large = vec![b' '; MAX_BODY + 1];
    let long = [("content-length", (MAX_BODY + 1).to_string())];
    let chunked = [
        ("transfer-encoding", "chunked".to_owned()),
        ("content-length", "0".to_owned()),
    ];
    let form = {
        let mut pairs = good.clone();
        pairs[1].1 = "application/x-www-form-urlencoded".into();
        pairs
    };
    assert_eq!(port.send("POST", "/", &good, &body).await, 404);
    assert_eq!(port.send("GET", "/v1/hooks/acme", &good, &body).await, 405);
    assert_eq!(port.send("POST", "/v1/hooks/none", &good, &body).await, 404);
    assert_eq!(port.send("POST", "/v1/hooks/bare", &good, &body).await, 503);
    assert_eq!(port.send("POST", "/v1/hooks/acme", &bad, &body).await, 401);
    assert_eq!(port.send("POST", "/v1/hooks/acme", &[], &body).await, 401);
    assert_eq!(port.send("POST", "/v1/hooks/acme", &form, &body).await, 415);
    // Announced or not, and whoever sends it; the answer may be lost behind the rest of the body.
    assert_eq!(port.send("POST", "/v1/hooks/acme", &long, b"").await, 413);
    let lost = port.send("POST", "/v1/hooks/none", &[], &large).await;
    assert!(matches!(lost, 413 | 0), "{lost}");
    let smuggled = port
        .send("POST", "/v1/hooks/acme", &chunked, b"0\r\n\r\n")
        .await;
    assert!(matches!(smuggled, 400 | 401), "{smuggled}");
    assert!(port.looks().is_empty());
    assert_eq!(port.send("POST", "/v1/hooks/acme", &good, &body).await, 202);
}

#[tokio::test]
async fn many_hooks_at_once_are_few_looks() {
    let port = Port::open().await;
    let mut codes = Vec::new();
    for n in 0..40 {
        codes.push(port.push("/v1/hooks/acme", &format!("d{n}")).await);
    }
    let through = codes.iter().filter(|code| **code == 202).count();
    assert!(
        codes.iter().all(|code| matches!(code, 202 | 429)),
        "{codes:?}"
    );
    assert!((10..20).contains(&through), "{through}");
    // Strangers use nothing up.
    let port = Port::open().await;
    let (bad, body) = hook(Sender::GitHub, "another-secret");
    for _ in 0..40 {
        assert_eq!(port.send("POST", "/v1/hooks/acme", &bad, &body).await, 401);
    }
    assert_eq!(port.push("/v1/hooks/acme", "1").await, 202);
}

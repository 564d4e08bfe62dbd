//! Each sender as it sends: its headers, its body, its proof, in the forms of its own documentation.

mod cases;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::port::{OLD_SECRET, Port, SECRET, hex256, hmac256};
use cases::{Case, cases, gitea_body, gitlab_body, now, standard_webhook};

#[tokio::test]
async fn each_sender_wakes_the_groups_of_the_branch_with_either_secret() {
    for case in cases() {
        for secret in [SECRET, OLD_SECRET] {
            let port = Port::start().await;
            let body = case.body.to_string().into_bytes();
            let proof = (case.proof)(secret, &body);
            assert_eq!(case.send(&port, &proof, &body).await, 202, "{}", case.name);
            let looks = port.looks();
            assert!(
                looks.contains(&"library".to_owned()),
                "{}: {looks:?}",
                case.name
            );
            assert!(!looks.contains(&"other".to_owned()), "{}", case.name);
            let without_refs = case.receiver == "generic";
            assert_eq!(
                looks.contains(&"release".to_owned()),
                without_refs,
                "{}",
                case.name
            );
            assert_eq!(port.counted(case.receiver, "accepted"), 1);
        }
    }
}

#[tokio::test]
async fn no_sender_is_believed_without_its_own_proof() {
    let port = Port::start().await;
    for case in cases() {
        let body = case.body.to_string().into_bytes();
        let wrong = (case.proof)("another-secret", &body);
        assert_eq!(
            case.send(&port, &wrong, &body).await,
            401,
            "{}: another secret",
            case.name
        );
        let mut empty = (case.proof)("", &body);
        assert_eq!(
            case.send(&port, &empty, &body).await,
            401,
            "{}: no secret",
            case.name
        );
        for (_, value) in &mut empty {
            value.clear();
        }
        assert_eq!(
            case.send(&port, &empty, &body).await,
            401,
            "{}: empty",
            case.name
        );
        if !case.unsigned_body {
            let right = (case.proof)(SECRET, &body);
            let altered = String::from_utf8(body)
                .unwrap()
                .replace("library", "librarz");
            let altered = altered.into_bytes();
            assert_eq!(
                case.send(&port, &right, &altered).await,
                401,
                "{}: altered",
                case.name
            );
        }
    }
    assert!(port.looks().is_empty());
}

#[tokio::test]
async fn no_sender_is_believed_with_the_proof_of_another() {
    let port = Port::start().await;
    let all = cases();
    for case in &all {
        for other in all.iter().filter(|other| other.receiver != case.receiver) {
            // Bitbucket's header is that of GitHub's SHA-1: what it holds is told by the receiver alone.
            let body = case.body.to_string().into_bytes();
            let proof = (other.proof)(SECRET, &body);
            // Forgejo signs as Gitea does, beside its own.
            let twins = [case.receiver, other.receiver];
            if twins == ["gitea", "forgejo"] || twins == ["forgejo", "gitea"] {
                continue;
            }
            let status = case.send(&port, &proof, &body).await;
            assert_eq!(
                status, 401,
                "{} with the proof of {}",
                case.name, other.name
            );
        }
    }
}

#[tokio::test]
async fn a_bad_header_of_forgejo_is_not_rescued_by_a_good_one_of_gitea() {
    let port = Port::start().await;
    let body = gitea_body().to_string().into_bytes();
    let good = hex256(SECRET, &body);
    let headers = |own: &'static str| {
        vec![
            ("content-type", "application/json"),
            ("x-forgejo-event", "push"),
            ("x-forgejo-signature", own),
        ]
    };
    for bad in ["", "00", "zz"] {
        let mut headers = headers(bad);
        headers.push(("x-gitea-signature", &good));
        headers.push(("x-hub-signature-256", &good));
        let said = port.post("/v1/hooks/forgejo", &headers, &body).await;
        assert_eq!(said.status, 401, "{bad}");
    }
    // Without its own header, that of Gitea counts: older versions send only that.
    let older = [
        ("content-type", "application/json"),
        ("x-gitea-event", "push"),
        ("x-gitea-signature", good.as_str()),
    ];
    assert_eq!(
        port.post("/v1/hooks/forgejo", &older, &body).await.status,
        202
    );
}

#[tokio::test]
async fn a_signed_time_counts_for_five_minutes_either_way() {
    let port = Port::start().await;
    let body = gitlab_body().to_string().into_bytes();
    let at = |time: u64| standard_webhook(SECRET, &body, time);
    let send = async |mut proof: Vec<(&'static str, String)>| {
        proof.push(("x-gitlab-event", "Push Hook".to_owned()));
        proof.push(("content-type", "application/json".to_owned()));
        let headers: Vec<_> = proof
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        port.post("/v1/hooks/gitlab", &headers, &body).await.status
    };
    for stale in [now() - 400, now() + 400, 0, u64::MAX] {
        assert_eq!(send(at(stale)).await, 401, "{stale}");
    }
    // A time that was not the one that was signed.
    let mut moved = at(now() - 400);
    moved[1].1 = now().to_string();
    assert_eq!(send(moved).await, 401);
    let mut words = at(now());
    words[1].1 = "now".to_owned();
    assert_eq!(send(words).await, 401);
    assert!(port.looks().is_empty());
    assert_eq!(send(at(now() - 60)).await, 202);
    // The id is signed as well: the same message a second time is known.
    assert_eq!(send(at(now())).await, 200);
}

#[tokio::test]
async fn a_signing_secret_of_gitlab_has_a_form_of_its_own() {
    let port = Port::start().await;
    let raw = b"0123456789abcdef0123456789abcdef";
    let secret = format!("whsec_{}", STANDARD.encode(raw));
    std::fs::write(port.dir.path().join("gitlab.gitlab"), &secret).unwrap();
    let body = gitlab_body().to_string().into_bytes();
    let time = now().to_string();
    for (key, status) in [(&raw[..], 202), (secret.as_bytes(), 401)] {
        let mac = hmac256(key, &[b"msg_2.", time.as_bytes(), b".", &body]);
        let signature = format!("v1,{}", STANDARD.encode(mac));
        let headers = [
            ("content-type", "application/json"),
            ("x-gitlab-event", "Push Hook"),
            ("webhook-id", "msg_2"),
            ("webhook-timestamp", time.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        assert_eq!(
            port.post("/v1/hooks/gitlab", &headers, &body).await.status,
            status
        );
    }
}

#[tokio::test]
async fn a_line_for_azure_can_name_the_user() {
    let port = Port::start().await;
    std::fs::write(port.dir.path().join("azure.azure"), "ci:pass:word\n").unwrap();
    let case = cases()
        .into_iter()
        .find(|case| case.receiver == "azure")
        .unwrap();
    let body = case.body.to_string().into_bytes();
    for (pair, status) in [
        ("ci:pass:word", 202),
        ("other:pass:word", 401),
        ("ci:pass", 401),
        ("pass:word", 401),
        ("", 401),
    ] {
        let basic = format!("basic {}", STANDARD.encode(pair));
        let proof = vec![("authorization", basic)];
        assert_eq!(case.send(&port, &proof, &body).await, status, "{pair}");
    }
    for header in ["Bearer x", "Basic", "Basic !!!", "Basic Og=="] {
        let proof = vec![("authorization", header.to_owned())];
        assert_eq!(case.send(&port, &proof, &body).await, 401, "{header}");
    }
}

#[tokio::test]
async fn each_sender_has_pings_and_empty_pushes() {
    let port = Port::start().await;
    let all = cases();
    let sent = async |name: &str, event: &[(&'static str, &'static str)], body: Value| {
        let case = all.iter().find(|case| case.name == name).unwrap();
        let case = Case {
            name: case.name,
            receiver: case.receiver,
            event: &[],
            body: body.clone(),
            proof: case.proof,
            unsigned_body: false,
        };
        let bytes = body.to_string().into_bytes();
        let mut proof = (case.proof)(SECRET, &bytes);
        proof.extend(
            event
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        case.send(&port, &proof, &bytes).await
    };
    // Pings and other events.
    assert_eq!(
        sent(
            "Bitbucket Data Center",
            &[("x-event-key", "diagnostics:ping")],
            json!({"test": true})
        )
        .await,
        200
    );
    assert_eq!(
        sent(
            "GitLab, token",
            &[("x-gitlab-event", "Issue Hook")],
            json!({})
        )
        .await,
        200
    );
    assert_eq!(
        sent(
            "GitLab, token",
            &[("x-gitlab-event", "System Hook")],
            json!({"event_name": "user_create"})
        )
        .await,
        200
    );
    assert_eq!(
        sent("Azure DevOps", &[], json!({"eventType": "build.complete"})).await,
        200
    );
    // Nothing in them, or something else: each was a crash of some receiver.
    let link = json!({"links": {"html": {"href": "https://forge.example/acme/library"}}});
    for changes in [
        json!([]),
        json!(null),
        json!({}),
        json!([null]),
        json!([{}]),
        json!([{"new": []}]),
        json!([{"new": {"type": 1}}]),
    ] {
        let body = json!({"push": {"changes": changes}, "repository": link});
        assert_eq!(
            sent("Bitbucket Cloud", &[("x-event-key", "repo:push")], body).await,
            400,
            "{changes}"
        );
        let body = json!({"changes": changes, "repository": link});
        assert_eq!(
            sent(
                "Bitbucket Data Center",
                &[("x-event-key", "repo:refs_changed")],
                body
            )
            .await,
            400,
            "{changes}"
        );
        let body = json!({"eventType": "git.push", "resource": {"refUpdates": changes,
            "repository": {"remoteUrl": "https://forge.example/acme/library"}}});
        assert_eq!(sent("Azure DevOps", &[], body).await, 400, "{changes}");
    }
    let body = json!({"event_name": "repository_update", "refs": [],
        "project": {"git_http_url": "https://forge.example/acme/library"}});
    assert_eq!(
        sent("GitLab, token", &[("x-gitlab-event", "System Hook")], body).await,
        400
    );
    assert!(port.looks().is_empty());
    // A tag that was made, told in two parts.
    let body = json!({"ref": "v1.2.0", "ref_type": "tag", "repository": {"clone_url": "https://forge.example/acme/library"}});
    assert_eq!(
        sent("GitHub", &[("x-github-event", "create")], body).await,
        202
    );
    assert_eq!(port.looks(), ["release"]);
}

#[tokio::test]
async fn a_generic_hook_for_one_group_needs_no_body() {
    let port = Port::start().await;
    let signature = format!("sha256={}", hex256(SECRET, b""));
    let headers = [("x-signature", signature.as_str())];
    let said = port
        .post("/v1/hooks/generic/team-a/other", &headers, b"")
        .await;
    assert_eq!((said.status, port.looks()), (202, vec!["other".to_owned()]));
    let said = port.post("/v1/hooks/generic", &headers, b"").await;
    assert_eq!(said.status, 400, "it names nothing");
    for weak in ["sha1=00", "md5=00", "sha256", ""] {
        let said = port
            .post("/v1/hooks/generic", &[("x-signature", weak)], b"")
            .await;
        assert_eq!(said.status, 401, "{weak}");
    }
}

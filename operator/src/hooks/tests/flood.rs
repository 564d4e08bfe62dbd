//! Many hooks: few looks, and none too few.

use futures::stream::{self, StreamExt as _};

use super::port::{Port, github, push, signature};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_hooks_are_a_few_looks_and_the_last_push_is_seen() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    let signed = signature(&body);
    let answers: Vec<u16> = stream::iter(0..1000_u32)
        .map(|n| {
            let (port, signed, body) = (&port, signed.as_str(), body.as_slice());
            async move {
                port.groups.sent.send_modify(|sent| *sent += 1);
                let delivery = n.to_string();
                let said = port
                    .post("/v1/hooks/github", &github(signed, &delivery), body)
                    .await;
                assert_eq!(said.status == 429, said.retry_after.is_some());
                said.status
            }
        })
        .buffer_unordered(32)
        .collect()
        .await;
    port.looked_after("library", 1000).await;
    let of = |status| answers.iter().filter(|one| **one == status).count();
    assert_eq!(of(202) + of(429), 1000);
    assert!(of(202) >= 10 && of(429) > 0, "{} accepted", of(202));
    assert_eq!(port.counted("github", "accepted") as usize, of(202));
    assert_eq!(port.counted("github", "limited") as usize, of(429));
    // One at once, then no more than one for each second that it took: as few as there were tokens.
    let looks = port
        .looks()
        .iter()
        .filter(|name| *name == "library")
        .count();
    assert!(
        looks <= of(202) - 10 + 3,
        "{looks} looks, {} accepted",
        of(202)
    );
}

#[tokio::test]
async fn one_receiver_does_not_use_up_what_another_may() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    let signed = signature(&body);
    let mut n = 0;
    loop {
        n += 1;
        let said = port
            .post("/v1/hooks/github", &github(&signed, &n.to_string()), &body)
            .await;
        if said.status == 429 {
            break;
        }
    }
    let bare = signed.trim_start_matches("sha256=");
    let gitea = [
        ("content-type", "application/json"),
        ("x-gitea-event", "push"),
        ("x-gitea-signature", bare),
    ];
    assert_eq!(
        port.post("/v1/hooks/gitea", &gitea, &body).await.status,
        202
    );
    // Neither do hooks that are not believed.
    let other = Port::start().await;
    let wrong = "sha256=00";
    for _ in 0..50 {
        let said = other
            .post("/v1/hooks/github", &github(wrong, "x"), &body)
            .await;
        assert_eq!(said.status, 401);
    }
    assert_eq!(
        other
            .post("/v1/hooks/github", &github(&signed, "1"), &body)
            .await
            .status,
        202
    );
}

#[tokio::test]
async fn a_hook_over_the_limit_still_ends_in_a_look() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    let signed = signature(&body);
    let mut sent = 0;
    let other = String::from_utf8(body.clone())
        .unwrap()
        .replace("acme/library", "acme/other");
    let other_signed = signature(other.as_bytes());
    loop {
        sent += 1;
        let said = port
            .post(
                "/v1/hooks/github",
                &github(&signed, &sent.to_string()),
                &body,
            )
            .await;
        if said.status == 429 {
            break;
        }
    }
    // The bucket is empty: a push to another repository is over the limit, and not forgotten.
    let mut limited = false;
    while !limited {
        sent += 1;
        port.groups.sent.send_replace(sent);
        let delivery = sent.to_string();
        let said = port
            .post(
                "/v1/hooks/github",
                &github(&other_signed, &delivery),
                other.as_bytes(),
            )
            .await;
        limited = said.status == 429;
    }
    port.looked_after("other", sent).await;
}

//! Servers that cannot be reached any more.

use std::sync::Arc;

use ramen_client::{Client, ClientError, EraChoice, Options, ServerConfig};
use tokio::task::JoinHandle;

use super::support::{self, Http, answer, serve};
use super::{call, connect, legacy, text};
use crate::support::soon;

#[tokio::test]
async fn done_closes_when_the_server_cannot_be_reached_any_more() {
    let http = serve(|seen| legacy(seen).unwrap_or_else(|| answer(seen, &text("ok")))).await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    http.shut_down().await;
    let error = call(&client).await.unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Connect { .. } | ClientError::Answer { .. } | ClientError::Gone { .. }
        ),
        "{error}"
    );
    // A connection that was open may break first; the next attempt finds nobody.
    let _ = call(&client).await.unwrap_err();
    soon(client.done()).await;
}

/// A legacy server whose connections serve one request each, so that the next one needs a new connection. Its calls are
/// answered when the test says so.
async fn slow() -> Http {
    serve(|seen| {
        let close = |answer| support::with_headers(answer, "connection: close\r\n");
        match seen.method() {
            "tools/call" => support::later(&close(answer(seen, &text("late")))),
            _ => close(legacy(seen).unwrap()),
        }
    })
    .await
}

/// A call that is under way at a server which takes no new connection any more.
async fn under_way() -> (Http, Arc<Client>, JoinHandle<Result<String, ClientError>>) {
    let http = slow().await;
    let client = Arc::new(connect(&http, EraChoice::Auto).await.unwrap());
    let calling = tokio::spawn({
        let client = Arc::clone(&client);
        async move { call(&client).await }
    });
    // A `GET` has no method of the protocol: it is the question for a stream, which must not come later.
    soon(http.until("")).await;
    soon(http.until("tools/call")).await;
    http.close_port().await;
    (http, client, calling)
}

#[tokio::test]
async fn a_connection_that_is_refused_fails_its_own_call_and_none_that_is_under_way() {
    let (http, client, calling) = under_way().await;
    for _ in 0..3 {
        let error = call(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    }
    http.go_on();
    assert_eq!(soon(calling).await.unwrap().unwrap(), "late");
    assert!(!client.is_done());
    // With nothing under way it is the end.
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    soon(client.done()).await;
}

#[tokio::test]
async fn done_closes_with_the_last_call_when_the_server_could_not_be_reached_before() {
    let (http, client, calling) = under_way().await;
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    http.shut_down().await;
    soon(calling).await.unwrap().unwrap_err();
    soon(client.done()).await;
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_that_names_it() {
    let http = serve(|_| Vec::new()).await;
    let url = http.url();
    http.shut_down().await;
    let config = ServerConfig::http(url.parse().unwrap());
    let error = soon(Client::connect("web", &config, &Options::default()))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&url), "{error}");
}

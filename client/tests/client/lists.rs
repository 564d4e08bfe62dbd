//! Tools, prompts and resources: pages, refreshes, floods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ramen_client::{ClientError, EraChoice};
use serde_json::json;

use crate::support::{Log, connect, connect_with, legacy, legacy_client, limits, soon, tool};

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (client, server) = connect(|message, out| {
        if message["method"] == "tools/list" {
            match message["params"]["cursor"].as_str() {
                None => out.result(message, &json!({"tools": [tool("a")], "nextCursor": ""})),
                Some("") => out.result(message, &json!({"tools": [tool("b")], "nextCursor": "x"})),
                Some(_) => out.result(message, &json!({"tools": [tool("c")]})),
            }
        } else {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    let names: Vec<_> = client
        .tools()
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(server.seen("tools/list").len(), 3);
}

#[tokio::test]
async fn net04_a_server_that_repeats_its_cursor_is_stopped() {
    let (client, server) = legacy_client(|message, out| {
        if message["method"] == "prompts/list" {
            out.result(message, &json!({"prompts": [], "nextCursor": "again"}));
        }
    })
    .await;
    let error = soon(client.list_prompts()).await.unwrap_err();
    assert!(error.to_string().contains("same cursor"), "{error}");
    assert_eq!(server.seen("prompts/list").len(), 2);
}

#[tokio::test]
async fn list_prompts_fetches_every_template_with_its_arguments() {
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "prompts/list" {
            out.result(message, &json!({"prompts": [{"name": "review", "description": "looks",
                "arguments": [{"name": "code", "required": true}, {"name": "tone", "description": "how"}]}]}));
        }
    })
    .await;
    let prompts = soon(client.list_prompts()).await.unwrap();
    assert_eq!(prompts[0].name, "review");
    assert_eq!(prompts[0].description.as_deref(), Some("looks"));
    let arguments = &prompts[0].arguments;
    assert!(arguments[0].required && !arguments[1].required);
    assert_eq!(arguments[1].description.as_deref(), Some("how"));
}

#[tokio::test]
async fn list_prompts_is_fetched_fresh_on_every_call() {
    let count = AtomicUsize::new(0);
    let (client, _server) = legacy_client(move |message, out| {
        if message["method"] == "prompts/list" {
            let n = count.fetch_add(1, Ordering::SeqCst);
            out.result(message, &json!({"prompts": [{"name": format!("p{n}")}]}));
        }
    })
    .await;
    for n in 0..3 {
        let prompts = soon(client.list_prompts()).await.unwrap();
        assert_eq!(prompts[0].name, format!("p{n}"));
    }
}

#[tokio::test]
async fn list_resources_is_fetched_fresh_on_every_call() {
    let count = AtomicUsize::new(0);
    let (client, _server) = legacy_client(move |message, out| {
        if message["method"] == "resources/list" {
            let n = count.fetch_add(1, Ordering::SeqCst);
            out.result(message, &json!({"resources": [{"uri": format!("a://{n}"), "name": "n", "mimeType": "text/plain"}]}));
        }
    })
    .await;
    for n in 0..3 {
        let resources = soon(client.list_resources()).await.unwrap();
        assert_eq!(resources[0].uri, format!("a://{n}"));
        assert_eq!(resources[0].mime_type.as_deref(), Some("text/plain"));
    }
}

#[tokio::test]
async fn tools_are_cached_at_connect_time() {
    let (client, server) = legacy_client(|_, _| {}).await;
    for _ in 0..10 {
        assert_eq!(client.tools().len(), 1);
    }
    assert_eq!(server.seen("tools/list").len(), 1);
}

#[tokio::test]
async fn a_list_changed_notification_refreshes_the_tools() {
    let count = AtomicUsize::new(0);
    let (client, server) = connect(move |message, out| {
        if message["method"] == "tools/list" {
            let n = count.fetch_add(1, Ordering::SeqCst);
            out.result(message, &json!({"tools": [tool(&format!("v{n}"))]}));
        } else {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    let mut updates = client.updates();
    assert_eq!(client.tools()[0].name, "v0");
    server.out().notify("notifications/tools/list_changed");
    soon(updates.wait_for(|updates| updates.tools == 1))
        .await
        .unwrap();
    assert_eq!(client.tools()[0].name, "v1");
}

#[tokio::test]
async fn changes_of_prompts_and_resources_are_told() {
    let (client, server) = legacy_client(|_, _| {}).await;
    let mut updates = client.updates();
    server.out().notify("notifications/prompts/list_changed");
    server.out().notify("notifications/resources/list_changed");
    soon(updates.wait_for(|updates| updates.prompts == 1 && updates.resources == 1))
        .await
        .unwrap();
    assert_eq!(server.seen("tools/list").len(), 1);
}

#[tokio::test]
async fn tools_can_be_read_while_a_refresh_is_in_progress() {
    let count = AtomicUsize::new(0);
    let (client, server) = connect_with(
        move |message, out| {
            if message["method"] == "tools/list" {
                // Each list is of one version throughout.
                let n = count.fetch_add(1, Ordering::SeqCst);
                let tools: Vec<_> = (0..50).map(|i| tool(&format!("v{n}-{i}"))).collect();
                out.result(message, &json!({ "tools": tools }));
            } else {
                legacy(message, out, &json!([]));
            }
        },
        EraChoice::Legacy,
        limits(|limits| limits.refresh = Duration::ZERO),
    )
    .await
    .unwrap();
    let client = Arc::new(client);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (client, stop) = (Arc::clone(&client), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut versions = std::collections::HashSet::new();
                while !stop.load(Ordering::Relaxed) {
                    let tools = client.tools();
                    let version = tools[0].name.split('-').next().unwrap().to_owned();
                    assert_eq!(tools.len(), 50);
                    assert!(
                        tools
                            .iter()
                            .all(|tool| tool.name.starts_with(&format!("{version}-")))
                    );
                    versions.insert(version);
                }
                versions.len()
            })
        })
        .collect();
    let mut updates = client.updates();
    for round in 1..=30 {
        server.out().notify("notifications/tools/list_changed");
        soon(updates.wait_for(|updates| updates.tools >= round))
            .await
            .unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() >= 1);
    }
}

/// A thousand notifications within a second.
#[tokio::test(start_paused = true)]
async fn net13_a_flood_of_list_changed_costs_few_requests_and_ends_with_the_right_list() {
    let count = Arc::new(AtomicUsize::new(0));
    let listed = Arc::clone(&count);
    let (client, server) = connect(move |message, out| {
        if message["method"] == "tools/list" {
            let n = listed.load(Ordering::SeqCst);
            out.result(message, &json!({"tools": [tool(&format!("v{n}"))]}));
        } else {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    for n in 1..=1000 {
        count.store(n, Ordering::SeqCst);
        server.out().notify("notifications/tools/list_changed");
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let mut updates = client.updates();
    while client.tools()[0].name != "v1000" {
        updates.changed().await.unwrap();
    }
    let asked = server.seen("tools/list").len() - 1;
    assert!(asked <= 3, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_is_tried_again() {
    let count = AtomicUsize::new(0);
    let (client, server) = connect(move |message, out| {
        if message["method"] == "tools/list" {
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => out.result(message, &json!({"tools": [tool("old")]})),
                1 => out.error(message, -32603, "not now"),
                _ => out.result(message, &json!({"tools": [tool("new")]})),
            }
        } else {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    let mut updates = client.updates();
    server.out().notify("notifications/tools/list_changed");
    updates.changed().await.unwrap();
    assert_eq!(client.tools()[0].name, "new");
}

#[tokio::test]
async fn items_that_cannot_be_used_are_left_out_and_the_others_stay() {
    let log = Log::default();
    let _guard = log.start();
    let tools = json!([tool("a"), {"name": "no schema"}, 5, tool("a"), {"name": 7, "inputSchema": {}}, tool("b")]);
    let (client, _server) = connect(move |message, out| {
        legacy(message, out, &tools);
    })
    .await
    .unwrap();
    let names: Vec<_> = client
        .tools()
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert!(log.text().contains("left_out=4"), "{}", log.text());
}

#[tokio::test]
async fn lists_are_bounded() {
    let error = connect_with(
        |message, out| {
            if message["method"] == "tools/list" {
                let tools: Vec<_> = (0..11).map(|n| tool(&n.to_string())).collect();
                out.result(message, &json!({ "tools": tools }));
            } else {
                legacy(message, out, &json!([]));
            }
        },
        EraChoice::Legacy,
        limits(|limits| limits.items = 10),
    )
    .await
    .unwrap_err();
    assert!(matches!(error, ClientError::Answer { .. }), "{error}");
}

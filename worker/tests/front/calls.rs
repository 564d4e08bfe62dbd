//! Deadlines, cancellation, dead hosts and the environment of hosts.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{Client, Group, Logs, Running, eventually, text_of};
use crate::{group, setup};

/// What the host counted; `None` while there is no host.
async fn seen(client: &Client) -> Option<Value> {
    let answer = client.try_tool("seen", json!({})).await.ok()?;
    Some(serde_json::from_str(&text_of(&answer)).unwrap())
}

async fn pid(client: &Client) -> String {
    client.text("pid", json!({})).await
}

#[tokio::test]
async fn the_clients_deadline_is_a_status_and_reaches_the_host() {
    let running = setup().serve(&group(&["until_interrupted", "seen"])).await;
    let client = running.client().await;
    let mut hasty = client.clone();
    hasty.timeout = Some(Duration::from_secs(2));
    let ended = async || {
        let line = "ramen_host_restarts_total{cause=\"overdue\"}";
        running.metric(line).await
    };
    // A host that the machine gives no time to let go is ended, and the next one has seen nothing:
    // then another call is to tell.
    eventually("an interrupt that the host lives through", async || {
        let before = ended().await;
        let call = tokio::spawn({
            let hasty = hasty.clone();
            async move { hasty.try_tool("until_interrupted", json!({})).await }
        });
        eventually("the call is in the host, or over", async || {
            let there = seen(&client).await.is_some_and(|seen| seen["waiting"] == 1);
            (there || call.is_finished()).then_some(())
        })
        .await;
        let status = call.await.unwrap().unwrap_err();
        if status.code() == Code::Unavailable {
            return None;
        }
        assert!(
            matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
            "{status}"
        );
        let seen = eventually("the host is free of it", async || {
            seen(&client).await.filter(|seen| seen["waiting"] == 0)
        })
        .await;
        eventually("the place is free", async || {
            (running.metric("ramen_in_flight ").await == 0).then_some(())
        })
        .await;
        let told = [&seen["cancels"], &seen["interrupts"]];
        let told = told.iter().all(|count| count.as_u64() >= Some(1));
        (told && ended().await == before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_tools_own_limit_is_an_error_of_the_tool() {
    let tools = Group::new()
        .scripted_with(
            "slow",
            "until_interrupted",
            &json!({"timeout_seconds": 0.05}),
        )
        .scripted("seen", "seen");
    let running = setup().serve(&tools).await;
    let client = running.client().await;
    let limit = "TimeoutError: no result within 0.05 s";
    assert_eq!(client.error("slow", json!({})).await, limit);
    eventually("the interrupt", async || {
        if seen(&client).await?["interrupts"].as_u64() >= Some(1) {
            return Some(());
        }
        // The call may not have come to the host in that time, or the host was ended for it and
        // the next one counts anew.
        let answer = client.try_tool("slow", json!({})).await.ok()?;
        assert_eq!(text_of(&answer), limit);
        None
    })
    .await;
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_in_the_host() {
    let running = setup().serve(&group(&["until_cancelled", "seen"])).await;
    let client = running.client().await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.tool("until_cancelled", json!({})).await }
    });
    eventually("the call is in the host", async || {
        (seen(&client).await?["waiting"] == 1).then_some(())
    })
    .await;
    call.abort();
    eventually("the cancel", async || {
        // Whether an interrupt followed is a matter of how soon the answer was read.
        let seen = seen(&client).await?;
        (seen["cancels"] == 1 && seen["waiting"] == 0).then_some(())
    })
    .await;
    assert!(
        running
            .metric("ramen_calls_total{outcome=\"cancelled\"}")
            .await
            >= 1
    );
}

#[tokio::test]
async fn a_host_that_does_not_let_go_is_ended_and_replaced() {
    let tools = Group::new()
        .scripted_with("stuck", "wait", &json!({"timeout_seconds": 0.05}))
        .scripted("pid", "pid");
    let running = setup().serve(&tools).await;
    let client = running.client().await;
    let first = pid(&client).await;
    assert!(
        client
            .error("stuck", json!({}))
            .await
            .starts_with("TimeoutError")
    );
    eventually("another host", async || {
        (client.try_tool("pid", json!({})).await.ok()?["result"]["content"][0]["text"] != first)
            .then_some(())
    })
    .await;
    eventually("the restart is counted", async || {
        (running
            .metric("ramen_host_restarts_total{cause=\"overdue\"}")
            .await
            == 1)
            .then_some(())
    })
    .await;
    assert_gone(&first).await;
}

#[tokio::test]
async fn a_host_whose_only_thread_is_blocked_is_ended_while_others_answer() {
    let tools = Group::new()
        .scripted_with("block", "block", &json!({"timeout_seconds": 0.05}))
        .scripted("pid", "pid");
    let setup = setup().with(|args| args.hosts = Some("2".into()));
    let running = setup.serve(&tools).await;
    let client = running.client().await;
    assert!(
        client
            .error("block", json!({}))
            .await
            .starts_with("TimeoutError")
    );
    for _ in 0..20 {
        pid(&client).await;
    }
    eventually("the restart is counted", async || {
        (running
            .metric("ramen_host_restarts_total{cause=\"overdue\"}")
            .await
            == 1)
            .then_some(())
    })
    .await;
}

/// The process and everything it left behind is gone.
async fn assert_gone(pid: &str) {
    eventually("the process is gone", async || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    })
    .await;
}

async fn death(tool: &str, causes: &[&str]) -> Running {
    let running = setup().serve(&group(&[tool, "pid", "wait"])).await;
    let client = running.client().await;
    let before = pid(&client).await;
    let bystander = tokio::spawn({
        let client = client.clone();
        async move { client.try_tool("wait", json!({})).await }
    });
    eventually("the bystander waits", async || {
        (running.metric("ramen_in_flight ").await == 1).then_some(())
    })
    .await;
    let status = client.try_tool(tool, json!({})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(!ramen_proto::is_not_begun(&status), "it may have run");
    assert!(
        status.message().contains("host process"),
        "{}",
        status.message()
    );
    assert_eq!(
        bystander.await.unwrap().unwrap_err().code(),
        Code::Unavailable
    );
    let after = eventually("a new host", async || {
        let answer = client.try_tool("pid", json!({})).await.ok()?;
        Some(answer["result"]["content"][0]["text"].as_str()?.to_owned())
    })
    .await;
    assert_ne!(before, after);
    assert_gone(&before).await;
    eventually("the restart is counted", async || {
        for cause in causes {
            let line = format!("ramen_host_restarts_total{{cause=\"{cause}\"}}");
            if running.metric(&line).await == 1 {
                return Some(());
            }
        }
        None
    })
    .await;
    running
}

#[tokio::test]
async fn run04_a_host_that_exits_fails_its_calls_and_is_replaced() {
    death("exit", &["exited"]).await;
}

#[tokio::test]
async fn a_host_that_leaves_a_child_holding_its_channel_is_seen_to_be_dead() {
    death("fork", &["exited"]).await;
}

#[tokio::test]
async fn a_host_that_breaks_the_protocol_is_ended() {
    death("garbage", &["channel"]).await;
}

#[tokio::test]
async fn a_tool_that_keeps_ending_its_host_is_paused_and_others_go_on() {
    let running = setup().serve(&group(&["exit", "echo"])).await;
    let client = running.client().await;
    let mut paused = None;
    for _ in 0..10 {
        eventually("a host", async || {
            client.try_tool("echo", json!({})).await.ok()
        })
        .await;
        let status = client.try_tool("exit", json!({})).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let refused = status.message().contains("too often");
        assert_eq!(ramen_proto::is_not_begun(&status), refused, "{status}");
        if refused {
            paused = Some(status);
            break;
        }
    }
    assert!(paused.is_some(), "the breaker opens");
    assert_eq!(client.text("echo", json!({})).await, "{}");
    let ends = running
        .metric("ramen_host_restarts_total{cause=\"exited\"}")
        .await;
    assert_eq!(ends, 3, "three ends, then a pause");
}

#[tokio::test]
async fn a_host_is_replaced_after_so_many_calls() {
    let setup = setup().with(|args| args.host_max_calls = "5".into());
    let running = setup.serve(&group(&["pid"])).await;
    let client = running.client().await;
    let first = pid(&client).await;
    eventually("another host", async || {
        // None of the calls on the way may fail.
        let answer = client.tool("pid", json!({})).await;
        (text_of(&answer) != first).then_some(())
    })
    .await;
    assert_gone(&first).await;
    assert!(
        running
            .metric("ramen_host_restarts_total{cause=\"recycled\"}")
            .await
            >= 1
    );
}

#[tokio::test]
async fn run17_a_hosts_environment_is_built_from_nothing() {
    let setup = setup()
        .secret("RAMEN_SECRET_G__KEY", "s3cr3t-value\n")
        .secret("RAMEN_SECRET_OTHER__KEY", "not-for-g");
    let running = setup.serve(&group(&["env"])).await;
    let env = running.client().await.text("env", json!({})).await;
    let env: std::collections::BTreeMap<String, String> = serde_json::from_str(&env).unwrap();
    let names: Vec<_> = env.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "HOME",
            "LANG",
            "MKL_NUM_THREADS",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "PATH",
            "RAMEN_SECRET_G__KEY",
            "TMPDIR",
        ]
        .into_iter()
        .filter(|name| env.contains_key(*name))
        .chain(names.iter().copied().filter(|name| *name == "TZ"))
        .collect::<Vec<_>>()
    );
    assert_eq!(env["RAMEN_SECRET_G__KEY"], "s3cr3t-value");
    assert!(!format!("{env:?}").contains("rmk_"));
}

#[tokio::test]
async fn run01_what_a_tool_prints_is_logged_with_its_name_and_without_secrets() {
    let logs = Logs::capture();
    let setup = setup().secret("RAMEN_SECRET_G__KEY", "s3cr3t-value");
    let running = setup.serve(&group(&["print", "leak"])).await;
    let client = running.client().await;
    assert_eq!(client.text("print", json!({})).await, "printed");
    let line = eventually("the line", async || {
        logs.text()
            .lines()
            .find(|line| line.contains("\"printed "))
            .map(str::to_owned)
    })
    .await;
    assert!(line.contains("stdout"), "{line}");
    assert_eq!(
        client.error("leak", json!({})).await,
        "RuntimeError: key ***"
    );
    assert!(!logs.text().contains("s3cr3t-value"), "{}", logs.text());
}

#[tokio::test]
async fn a_callers_error_names_only_what_was_asked_for() {
    let running = setup().serve(&group(&["echo", "hidden_tool"])).await;
    let client = running.client().await;
    for (method, params, code) in [
        (
            "tools/call",
            json!({"name": "nope", "arguments": {}}),
            -32601,
        ),
        ("prompts/get", json!({"name": "nope"}), -32602),
        ("resources/read", json!({"uri": "demo://nope"}), -32002),
    ] {
        let answer = client.rpc(method, params).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
        let text = answer.to_string();
        assert!(text.contains("nope"), "run10: {text}");
        assert!(
            !text.contains("hidden_tool") && !text.contains("/tmp"),
            "run10: {text}"
        );
    }
}

#[tokio::test]
async fn a_copy_of_an_argument_that_a_gateway_passes_on_is_held_against_it() {
    let region = json!({"region": {"type": "string", "x-mcp-header": "Region"}});
    let source = "def echo(region):\n    pass\n";
    let group = Group::new().tool_with("located", &region, source, &json!({"callable": "echo"}));
    let running = setup().serve(&group).await;
    let mut client = running.client().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "located", "arguments": {"region": "eu"}, "_meta": meta});
    let http = ("mcp-protocol-version", "2026-07-28".to_owned());
    for (metadata, code) in [
        (vec![], None),
        (
            vec![http.clone(), ("mcp-param-region", "eu".to_owned())],
            None,
        ),
        (
            vec![http.clone(), ("mcp-param-region", "us".to_owned())],
            Some(-32020),
        ),
        (vec![http], Some(-32020)),
    ] {
        client.metadata = metadata;
        let answer = client.rpc("tools/call", params.clone()).await;
        assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
    }
}

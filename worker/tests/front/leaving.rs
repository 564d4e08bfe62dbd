//! NET07: clients that disconnect in the middle of an answer.

use serde_json::json;

use crate::harness::{call, eventually};
use crate::http2::Raw;
use crate::setup;
use crate::wire::{big, request};

const ROUNDS: u32 = 20;
const CLIENTS: u32 = 50;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Processes that this one started and has not waited for.
fn children() -> usize {
    let ours = format!("PPid:\t{}", std::process::id());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let statuses = entries.filter_map(|e| std::fs::read_to_string(e.path().join("status")).ok());
    let is_ours = |text: &String| text.lines().any(|line| line == ours);
    statuses.filter(is_ours).count()
}

fn resident_kib() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn net07_a_thousand_of_them_leave_nothing_behind() {
    let setup = setup().with(|args| {
        args.max_inflight = "100".into();
        args.max_connections = "100".into();
    });
    let tools = big()
        .scripted("until_cancelled", "until_cancelled")
        .scripted("pid", "pid");
    let running = setup.serve(&tools).await;
    let client = running.client().await;
    let host = client.text("pid", json!({})).await;
    let in_flight = async |count: u32| {
        eventually(&format!("{count} calls in flight"), async || {
            let found = running.metric("ramen_in_flight ").await;
            (found == u64::from(count)).then_some(())
        })
        .await;
    };
    let (open, processes) = (descriptors(), children());
    let mut half = 0;
    for round in 0..ROUNDS {
        // Half of them leave while their call runs, half with the first bytes of the answer.
        let ask = match round % 2 {
            0 => call(1, "until_cancelled", json!({})),
            _ => call(1, "big", json!({"bytes": 1 << 20})),
        };
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut raw = Raw::open(running.grpc).await;
            assert!(raw.send(&request(1, &ask)).await);
            clients.push(raw);
        }
        in_flight(CLIENTS).await;
        drop(clients);
        in_flight(0).await;
        if round + 1 == ROUNDS / 2 {
            half = resident_kib();
        }
    }
    eventually("all connections are closed", async || {
        // What the looks before left to be closed may have been counted.
        (descriptors() <= open).then_some(())
    })
    .await;
    assert_eq!(children(), processes);
    assert_eq!(client.text("pid", json!({})).await, host, "the same host");
    let grown = resident_kib().saturating_sub(half);
    assert!(grown < 64 * 1024, "{grown} KiB for the second half");
}

//! Upstreams that do what they should not. Each costs its own answers; the upstream beside it and the group's own tools go
//! on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::support::soon;

type Fault = fn(&Seen) -> Vec<u8>;

fn head(kind: &str, length: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n")
        .into_bytes()
}

fn json_of(seen: &Seen) -> Vec<u8> {
    seen.result(&text("x")).to_string().into_bytes()
}

const FAULTS: &[(&str, &str, Fault)] = &[
    ("a length that is too long", "broken_answer", |seen| {
        let body = json_of(seen);
        http::then_hang_up([head("application/json", body.len() + 100), body].concat())
    }),
    ("a length that is too short", "broken_answer", |seen| {
        let body = json_of(seen);
        http::then_hang_up([head("application/json", body.len() / 2), body].concat())
    }),
    ("a length for ever", "too_large", |_| {
        let body = vec![b' '; 5 << 20];
        http::then_silence([head("application/json", 1 << 40), body].concat())
    }),
    ("chunks for ever", "too_large", |_| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..5 {
            bytes.extend_from_slice(b"100000\r\n");
            bytes.extend(std::iter::repeat_n(b' ', 0x0010_0000));
            bytes.extend_from_slice(b"\r\n");
        }
        http::then_silence(bytes)
    }),
    ("an event for ever", "too_large", |_| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ";
        http::then_silence([&head[..], &vec![b'x'; 5 << 20]].concat())
    }),
    ("a compressed bomb", "broken_answer", |_| http::compressed()),
    ("another's id", "broken_answer", |seen| {
        let mut other = seen.clone();
        other.body["id"] = json!(4_000_000);
        answer(&other, &text("x"))
    }),
    (
        "the end in the middle of its events",
        "broken_answer",
        |seen| {
            let event = format!("data: {}\n\n", seen.result(&text("x")));
            let half = &event.as_bytes()[..event.len() / 2];
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            http::then_hang_up([&head[..], half].concat())
        },
    ),
    ("no HTTP", "broken_answer", |_| {
        http::then_hang_up(b"220 smtp.example ready\r\n".to_vec())
    }),
    ("no JSON", "broken_answer", |_| {
        [head("application/json", 5), b"hello".to_vec()].concat()
    }),
    ("a result that is none", "broken_answer", |seen| {
        answer(seen, &json!("text"))
    }),
    ("a redirect", "unavailable", |_| {
        b"HTTP/1.1 307 X\r\nlocation: http://169.254.169.254/latest/meta-data\r\ncontent-length: 0\r\n\r\n".to_vec()
    }),
    ("401", "refused", |_| status(401, &json!({}))),
    ("silence", "timeout", |_| http::then_silence(Vec::new())),
];

#[tokio::test]
async fn a_broken_answer_fails_that_call_and_everything_else_goes_on() {
    let (worker, good) = (Worker::start().await, server("good").await);
    for (what, reason, fault) in FAULTS {
        let bad = http::serve(move |seen| match seen.method() {
            "tools/call" => fault(seen),
            _ => reply("bad", seen),
        })
        .await;
        let mut spec = upstream("bad", &bad.url());
        if *reason == "timeout" {
            spec.server.as_mut().unwrap().timeout = Some(Duration::from_secs(2));
        }
        let upstreams = vec![spec, upstream("good", &good.url())];
        let gateway = gateway(&worker, upstreams, nearby()).await;
        until(&gateway, "bad", "up").await;
        until(&gateway, "good", "up").await;
        let got = soon(call(&gateway, "bad_act", json!({}))).await;
        assert_eq!(got.status, 200, "{what}");
        let error = &got.json()["error"];
        assert_eq!(
            error["data"],
            json!({"upstream": "bad", "reason": reason}),
            "{what}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with("the server `bad` "),
            "{what}: {message}"
        );
        assert_eq!(
            bad.seen("tools/call").len(),
            1,
            "{what}: it is not sent again"
        );
        assert!(
            call(&gateway, "good_act", json!({}))
                .await
                .text()
                .starts_with("good: "),
            "{what}"
        );
        assert_eq!(
            call(&gateway, "echo", json!({})).await.text(),
            "{}",
            "{what}"
        );
    }
}

/// A server that writes one piece again and again where `takes` says so, and counts the bytes.
struct Endless {
    url: String,
    sent: Arc<AtomicUsize>,
    broken_off: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The head and the piece of an answer without end.
type Takes = fn(&Seen) -> Option<(Vec<u8>, Vec<u8>)>;

impl Endless {
    async fn start(takes: Takes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (sent, broken_off) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&sent), Arc::clone(&broken_off));
        let task = tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                all.spawn(Self::connection(stream, takes, counts.clone()));
            }
        });
        Self {
            url,
            sent,
            broken_off,
            task,
        }
    }

    async fn connection(
        mut stream: TcpStream,
        takes: Takes,
        (sent, broken_off): (Arc<AtomicUsize>, Arc<AtomicUsize>),
    ) {
        let mut buffer = Vec::new();
        while let Some(seen) = http::read(&mut stream, &mut buffer).await {
            let Some((head, piece)) = takes(&seen) else {
                let _ = stream.write_all(&reply("bad", &seen)).await;
                continue;
            };
            let _ = stream.write_all(&head).await;
            while stream.write_all(&piece).await.is_ok() {
                sent.fetch_add(piece.len(), Ordering::SeqCst);
            }
            broken_off.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

#[tokio::test]
async fn a_list_of_100_mib_is_given_up_early_and_told() {
    let (worker, good) = (Worker::start().await, server("good").await);
    let bad = Endless::start(|seen| {
        (seen.method() == "tools/list").then(|| {
            let mut head = head("application/json", 100 << 20);
            let begin = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":["#,
                seen.body["id"]
            );
            head.extend_from_slice(begin.as_bytes());
            let piece = format!("{},", tool("x")).repeat(100);
            (head, piece.into_bytes())
        })
    })
    .await;
    let upstreams = vec![upstream("bad", &bad.url), upstream("good", &good.url())];
    let mut policy = nearby();
    // Once is enough.
    policy.backoff.first = Duration::from_mins(10);
    policy.backoff.max = Duration::from_mins(10);
    let gateway = gateway(&worker, upstreams, policy).await;
    until(&gateway, "bad", "down").await;
    let why = state(&gateway, "bad")["why"].to_string();
    assert!(why.contains("larger than 4194304 bytes"), "{why}");
    eventually("the connection is closed", || {
        bad.broken_off.load(Ordering::SeqCst) > 0
    })
    .await;
    let sent = bad.sent.load(Ordering::SeqCst);
    // Two eras were tried; each read 4 MiB, and the rest is in the buffers of the system.
    assert!(sent < 40 << 20, "{sent} bytes were taken");
    until(&gateway, "good", "up").await;
    assert_eq!(
        names(&tools(&gateway).await)[3..],
        ["good_act", "good_other_one"]
    );
    assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn many_small_pages_are_bounded_together() {
    let worker = Worker::start().await;
    let bad = http::serve(|seen| match seen.method() {
        "tools/list" => {
            let page = seen.earlier("tools/list");
            let mut tool = tool(&format!("t{page}"));
            tool["description"] = json!("x".repeat(500_000));
            answer(
                seen,
                &json!({"tools": [tool], "nextCursor": page.to_string()}),
            )
        }
        _ => reply("bad", seen),
    })
    .await;
    let gateway = gateway(&worker, vec![upstream("bad", &bad.url())], nearby()).await;
    until(&gateway, "bad", "down").await;
    let why = state(&gateway, "bad")["why"].to_string();
    assert!(why.contains("larger than 2097152 bytes"), "{why}");
}

#[tokio::test]
async fn a_flood_of_notifications_slows_nobody_else_and_is_told_to_nobody() {
    let (worker, good) = (Worker::start().await, server("good").await);
    let bad = Endless::start(|seen| {
        (seen.http_method == "GET").then(|| {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
            let event = |method: &str, params: Value| {
                format!(
                    "data: {}\n\n",
                    json!({"jsonrpc": "2.0", "method": method, "params": params})
                )
            };
            let piece = [
                event("notifications/tools/list_changed", json!({})),
                event("notifications/prompts/list_changed", json!({})),
                event(
                    "notifications/message",
                    json!({"level": "info", "data": "x".repeat(1000)}),
                ),
                event(
                    "notifications/progress",
                    json!({"progressToken": 1, "progress": 1}),
                ),
                event("nonsense", json!({})),
                "data: no message\n\n".to_owned(),
            ]
            .concat();
            (head, piece.into_bytes())
        })
    })
    .await;
    let upstreams = vec![upstream("bad", &bad.url), upstream("good", &good.url())];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    until(&gateway, "bad", "up").await;
    until(&gateway, "good", "up").await;
    let listed = tools(&gateway).await;
    let (mut listening, _) = gateway.listen().await;
    let before = bad.sent.load(Ordering::SeqCst);
    let flooded = || bad.sent.load(Ordering::SeqCst) > before + (4 << 20);
    while !flooded() {
        assert!(
            call(&gateway, "bad_act", json!({}))
                .await
                .text()
                .starts_with("bad: ")
        );
        assert!(
            call(&gateway, "good_act", json!({}))
                .await
                .text()
                .starts_with("good: ")
        );
        assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
    }
    assert_eq!(tools(&gateway).await, listed);
    // Its list is the same as before, so nobody is told; the worker's next revision is the first that is heard of.
    let mut next = std::pin::pin!(listening.next());
    assert!(futures::poll!(next.as_mut()).is_pending());
}

#[tokio::test]
async fn endless_answers_at_once_take_their_bound_each_and_the_good_one_beside_goes_on() {
    const CALLS: usize = 16;
    let (worker, good) = (Worker::start().await, server("good").await);
    let bad = Endless::start(|seen| {
        (seen.method() == "tools/call").then(|| {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{".to_vec();
            (head, vec![b' '; 64 << 10])
        })
    })
    .await;
    let mut spec = upstream("bad", &bad.url);
    // All that is read, not the time, is to end them.
    spec.server.as_mut().unwrap().timeout = Some(Duration::from_mins(1));
    let upstreams = vec![spec, upstream("good", &good.url())];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    until(&gateway, "bad", "up").await;
    until(&gateway, "good", "up").await;
    let calls = futures::future::join_all((0..CALLS).map(|_| call(&gateway, "bad_act", json!({}))));
    let others = async {
        for _ in 0..5 {
            let good = call(&gateway, "good_act", json!({})).await;
            assert!(good.text().starts_with("good: "));
        }
    };
    let (answers, ()) = tokio::join!(calls, others);
    for answer in answers {
        assert_eq!(
            answer.json()["error"]["data"],
            json!({"upstream": "bad", "reason": "too_large"})
        );
    }
    eventually("all connections are closed", || {
        bad.broken_off.load(Ordering::SeqCst) == CALLS
    })
    .await;
    // 4 MiB of each were read; the rest is in the buffers of the system.
    let sent = bad.sent.load(Ordering::SeqCst);
    assert!(sent < CALLS * (20 << 20), "{sent} bytes were taken");
}

#[tokio::test]
async fn notifications_for_ever_in_the_place_of_an_answer_end_with_the_time_of_their_call() {
    let (worker, good) = (Worker::start().await, server("good").await);
    let bad = Endless::start(|seen| {
        (seen.method() == "tools/call").then(|| {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
            let token = &seen.body["params"]["_meta"]["progressToken"];
            let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                {"progressToken": token, "progress": 1, "message": "x".repeat(1000)}});
            (head, format!("data: {report}\n\n").repeat(100).into_bytes())
        })
    })
    .await;
    let mut spec = upstream("bad", &bad.url);
    spec.server.as_mut().unwrap().timeout = Some(Duration::from_secs(3));
    let upstreams = vec![spec, upstream("good", &good.url())];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    until(&gateway, "bad", "up").await;
    until(&gateway, "good", "up").await;
    let progress = json!({"name": "bad_act", "arguments": {}, "_meta": {"progressToken": "p"}});
    let asked = gateway.post(&request("tools/call", &progress));
    // It reads as it comes, a bit at a time; whoever does not read at all is another test's.
    let mut events = crate::support::Events::of(gateway.open(asked).await);
    assert_eq!(
        events.next().await.unwrap()["method"],
        "notifications/progress"
    );
    for _ in 0..5 {
        let good = call(&gateway, "good_act", json!({})).await;
        assert!(good.text().starts_with("good: "));
        assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
    }
    let last = loop {
        let message = events.next().await.unwrap();
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!(
        last["error"]["data"],
        json!({"upstream": "bad", "reason": "timeout"})
    );
    eventually("the connection is closed", || {
        bad.broken_off.load(Ordering::SeqCst) > 0
    })
    .await;
}

#[tokio::test]
async fn odd_names_and_names_that_clash_are_all_callable_and_in_bounds() {
    let worker = Worker::start().await;
    let long = "n".repeat(300);
    let odd = [
        "a.b", "a_b", "a b", "a/b", "", "ünï", "echo", "<script>", "a\u{0}b", "a\nb", &long,
    ];
    let listed = json!({"tools": odd.map(tool).to_vec()});
    let web = http::serve(move |seen| match seen.method() {
        "tools/list" => {
            let mut listed = listed.clone();
            let tools = listed["tools"].as_array_mut().unwrap();
            tools.extend([
                tool("a.b"),
                json!({"name": 1, "inputSchema": {}}),
                json!({"name": "no_schema"}),
                json!("no object"),
            ]);
            answer(seen, &listed)
        }
        _ => reply("web", seen),
    })
    .await;
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    let listed = tools(&gateway).await;
    let names = names(&listed);
    let theirs: Vec<_> = names
        .iter()
        .filter(|name| name.starts_with("web_"))
        .collect();
    assert_eq!(theirs.len(), odd.len(), "{names:?}");
    let mut called = std::collections::BTreeSet::new();
    for name in theirs {
        assert!(
            name.len() <= 64
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)),
            "{name}"
        );
        assert!(call(&gateway, name, json!({})).await.status.is_success());
        let seen = web.seen("tools/call").pop().unwrap();
        called.insert(seen.body["params"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        called,
        odd.map(str::to_owned).into(),
        "each leads to its own tool"
    );
    assert!(
        names.contains(&"web_a_b"),
        "a name that needs no change keeps it"
    );
    let plain = call(&gateway, "web_a_b", json!({})).await.text();
    assert!(plain.contains(r#""name":"a_b""#), "{plain}");
    // The group's own tool of that name is still its own.
    assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
}

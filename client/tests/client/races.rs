//! Seeded interleavings: answers, the end of the connection and `done` in one moment.

use ramen_client::{ClientError, Json};
use serde_json::{Value, json};

use crate::support::{legacy_client, soon};

/// Calls that wait when the end comes.
const CALLS: usize = 8;

/// Numbers that look random, the same for one seed.
struct Seeded(u64);

impl Seeded {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Which calls are answered, in which order, before the end comes.
fn answered(seed: u64) -> Vec<usize> {
    let mut seeded = Seeded::new(seed);
    let mut all: Vec<_> = (0..CALLS).collect();
    for at in (1..CALLS).rev() {
        all.swap(at, seeded.below(at + 1));
    }
    all.truncate(seeded.below(CALLS + 1));
    all
}

fn answer(call: &Value) -> Value {
    let n = &call["params"]["arguments"]["n"];
    let text = json!({"content": [{"type": "text", "text": n.to_string()}]});
    json!({"jsonrpc": "2.0", "id": call["id"], "result": text})
}

/// The answers that came count, everyone else hears of the end, and both before `done` is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_waits_has_an_answer_once_done_is_said() {
    for seed in 0..300 {
        let calls = std::sync::Mutex::new(Vec::new());
        let (client, _server) = legacy_client(move |message, out| {
            if message["method"] == "tools/call" {
                let mut calls = calls.lock().unwrap();
                calls.push(message.clone());
                if calls.len() == CALLS {
                    let find = |n: &usize| {
                        calls
                            .iter()
                            .find(|call| call["params"]["arguments"]["n"] == *n)
                    };
                    for n in answered(seed) {
                        out.send(&answer(find(&n).unwrap()));
                    }
                    out.close();
                }
            }
        })
        .await;
        let args: Vec<_> = (0..CALLS).map(|n| Json::from(&json!({ "n": n }))).collect();
        let ask = |args| futures::future::maybe_done(client.call_tool("one", args));
        let mut calls: Vec<_> = args.iter().map(|args| Box::pin(ask(args))).collect();
        for call in &mut calls {
            // The last one may have its answer at once.
            let _ = futures::poll!(call.as_mut());
        }
        soon(client.done()).await;
        let answered = answered(seed);
        for (n, mut call) in calls.into_iter().enumerate() {
            let has_one = futures::poll!(call.as_mut()).is_ready();
            assert!(has_one, "{seed}: {n} waits although done was said");
            match call.as_mut().take_output() {
                Some(Ok(text)) => assert!(
                    text == n.to_string() && answered.contains(&n),
                    "{seed}: {n} has {text}"
                ),
                Some(Err(ClientError::Gone { .. })) => {
                    assert!(!answered.contains(&n), "{seed}: the answer of {n} is lost");
                }
                other => panic!("{seed}: {n} has {other:?}"),
            }
        }
    }
}

/// The same when the end is ours: each call has its own answer or hears of the end, and none is asked after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn close_at_the_same_time_as_answers_leaves_nobody_waiting() {
    for seed in 0..300 {
        let (client, _server) = legacy_client(|message, out| {
            if message["method"] == "tools/call" {
                out.send(&answer(message));
            }
        })
        .await;
        let client = std::sync::Arc::new(client);
        let calling: Vec<_> = (0..CALLS)
            .map(|n| {
                let client = std::sync::Arc::clone(&client);
                tokio::spawn(async move {
                    let args = Json::from(&json!({ "n": n }));
                    client.call_tool("one", &args).await
                })
            })
            .collect();
        for _ in 0..Seeded::new(seed).below(40) {
            tokio::task::yield_now().await;
        }
        soon(client.close()).await;
        assert!(client.is_done(), "{seed}");
        for (n, call) in calling.into_iter().enumerate() {
            match soon(call).await.unwrap() {
                Ok(text) => assert_eq!(text, n.to_string(), "{seed}"),
                Err(error) => assert!(matches!(error, ClientError::Gone { .. }), "{seed}: {error}"),
            }
        }
        let late = client.call_tool("one", &Json::from(&json!({}))).await;
        assert!(matches!(late, Err(ClientError::Gone { .. })), "{seed}");
    }
}

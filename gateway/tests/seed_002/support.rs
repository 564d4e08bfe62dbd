//! Operations with a gate whose verdicts the test sets, and requests to them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::{Caller, Denied, Door, Recheck, Verify};
use ramen_gateway::operations::{
    Access, Admit, Authorize, Config, Context, DefaultPolicy, Descriptor, Disclosed, Flags, Gate,
    Guard, OpError, Operations, invoke, new, plain_context,
};
use ramen_gateway::origin::Sites;
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeyDigest;
use serde_json::{Value, json};

pub(crate) const KEY: &str = "rmk_operator";
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A verifier, an admission, a policy and a guard in one; each answers what the test says.
#[derive(Default)]
pub(crate) struct Script {
    /// Whether credentials cannot be verified now.
    pub(crate) down: AtomicBool,
    /// Whether the key was revoked after it was verified.
    pub(crate) revoked: AtomicBool,
    /// Refused by `admit`, from the n-th look on (0: the first).
    pub(crate) not_admitted: Mutex<Option<(String, usize, OpError)>>,
    /// Refused by `authorize`, in the same way.
    pub(crate) not_authorized: Mutex<Option<(String, usize, OpError)>>,
    /// What the guard answers.
    pub(crate) guard: Mutex<Option<OpError>>,
    /// What the guard saw: the operation, and what was disclosed.
    pub(crate) guarded: Mutex<Vec<(Option<String>, Value)>>,
    admissions: AtomicUsize,
    authorizations: AtomicUsize,
    /// How often something ran.
    pub(crate) ran: AtomicUsize,
    /// Whether there is a rechecker.
    pub(crate) rechecks: bool,
    /// Who panics: `admit`, `authorize` or `guard`.
    pub(crate) panics: Mutex<Option<&'static str>>,
}

impl Script {
    fn stumble(&self, who: &str) {
        let stumbles = *self.panics.lock().unwrap() == Some(who);
        if stumbles {
            unreachable!("the secret of a test");
        }
    }
}

fn verdict(
    rule: &Mutex<Option<(String, usize, OpError)>>,
    looks: &AtomicUsize,
    id: &str,
) -> Result<(), OpError> {
    match &*rule.lock().unwrap() {
        Some((refused, from, error)) if refused == id => {
            let look = looks.fetch_add(1, Ordering::SeqCst);
            if look >= *from {
                Err(error.clone())
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

pub(crate) struct Shared(pub(crate) Arc<Script>);

impl Verify for Shared {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        let verdict = if self.0.down.load(Ordering::SeqCst) {
            Err(Denied::Unavailable)
        } else if token == KEY.as_bytes() {
            Ok(Caller::of_key(KeyDigest::of(token)))
        } else {
            Err(Denied::Invalid)
        };
        Box::pin(std::future::ready(verdict))
    }

    fn rechecker(&self) -> Option<&dyn Recheck> {
        self.0.rechecks.then_some(self as &dyn Recheck)
    }
}

impl Recheck for Shared {
    fn recheck<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, Result<(), Denied>> {
        let revoked = self.0.revoked.load(Ordering::SeqCst);
        Box::pin(std::future::ready(if revoked {
            Err(Denied::Invalid)
        } else {
            Ok(())
        }))
    }
}

impl Admit for Shared {
    fn admit(&self, _: &Caller, operation: &Descriptor) -> Result<(), OpError> {
        self.0.stumble("admit");
        verdict(&self.0.not_admitted, &self.0.admissions, &operation.id)
    }
}

impl Authorize for Shared {
    fn authorize<'a>(
        &'a self,
        _: &'a Context,
        _: &'a Caller,
        operation: &'a Descriptor,
    ) -> BoxFuture<'a, Result<(), OpError>> {
        self.0.stumble("authorize");
        let verdict = verdict(
            &self.0.not_authorized,
            &self.0.authorizations,
            &operation.id,
        );
        Box::pin(std::future::ready(verdict))
    }
}

impl Guard for Shared {
    fn check<'a>(
        &'a self,
        _: &'a Context,
        operation: Option<&'a Descriptor>,
        disclosed: Disclosed<'a>,
    ) -> BoxFuture<'a, Result<(), OpError>> {
        self.0.stumble("guard");
        let disclosed = match disclosed {
            Disclosed::Result(value) => value.clone(),
            Disclosed::Operations(operations) => {
                operations.iter().map(|one| one.id.clone()).collect()
            }
        };
        let operation = operation.map(|operation| operation.id.clone());
        self.0.guarded.lock().unwrap().push((operation, disclosed));
        let verdict = self.0.guard.lock().unwrap().clone();
        Box::pin(std::future::ready(verdict.map_or(Ok(()), Err)))
    }
}

/// Operations under test.
pub(crate) struct Bench {
    pub(crate) script: Arc<Script>,
    pub(crate) operations: Operations,
    pub(crate) door: Door,
}

pub(crate) fn gate(script: &Arc<Script>) -> Gate {
    Gate {
        verify: Some(Arc::new(Shared(Arc::clone(script)))),
        admit: Some(Arc::new(Shared(Arc::clone(script)))),
        max_response: 1024,
    }
}

pub(crate) fn config(script: &Arc<Script>) -> Config {
    Config {
        gate: gate(script),
        context: Some(plain_context()),
        authorize: Some(Arc::new(DefaultPolicy)),
        guard: None,
        guarded: false,
        name: "a platform".into(),
        version: "1.2.3".into(),
        instructions: "Be kind.".into(),
        max_result: 0,
        ranges: CidrSet::parse_list("127.0.0.0/8").unwrap(),
    }
}

/// An operation that answers `{"done": true}` with what it got, and counts.
pub(crate) fn operation(script: &Arc<Script>, id: &str) -> Descriptor {
    let script = Arc::clone(script);
    answering(id, move |input| {
        script.ran.fetch_add(1, Ordering::SeqCst);
        Ok(json!({ "done": true, "got": input }))
    })
}

/// An operation that answers this.
pub(crate) fn answering(
    id: &str,
    run: impl Fn(Value) -> Result<Value, OpError> + Send + Sync + 'static,
) -> Descriptor {
    Descriptor {
        id: id.into(),
        summary: format!("{id} of a test"),
        access: Access::new("bookmarks:write"),
        input: json!({
            "type": "object",
            "properties": { "n": { "type": "integer" } },
            "additionalProperties": false,
        }),
        result: json!({ "type": "object" }),
        flags: Flags::default(),
        invoke: Some(invoke(move |_, input| std::future::ready(run(input)))),
    }
}

pub(crate) fn door() -> Door {
    Door {
        address: AddressRule::default(),
        sites: Sites {
            loopback: true,
            ..Sites::default()
        },
        callers: Callers::new(Limits::default()),
    }
}

impl Bench {
    /// Two operations, no rechecker, the default policy.
    pub(crate) fn plain() -> Self {
        Self::with(Script::default(), |_, _| {})
    }

    pub(crate) fn with(
        script: Script,
        change: impl FnOnce(&mut Config, &mut Vec<Descriptor>),
    ) -> Self {
        let script = Arc::new(script);
        let mut config = config(&script);
        let mut descriptors = vec![
            operation(&script, "bookmarks.create"),
            operation(&script, "bookmarks.delete"),
        ];
        change(&mut config, &mut descriptors);
        Self {
            operations: new(config, descriptors).unwrap(),
            script,
            door: door(),
        }
    }

    /// With a rechecker, and the scripted policy and guard.
    pub(crate) fn rechecking() -> Self {
        Self::rechecking_with(|_| {})
    }

    pub(crate) fn rechecking_with(change: impl FnOnce(&mut Vec<Descriptor>)) -> Self {
        let script = Arc::new(Script {
            rechecks: true,
            ..Script::default()
        });
        let mut config = config(&script);
        config.authorize = Some(Arc::new(Shared(Arc::clone(&script))));
        config.guard = Some(Arc::new(Shared(Arc::clone(&script))));
        let mut descriptors = vec![
            operation(&script, "bookmarks.create"),
            operation(&script, "bookmarks.delete"),
        ];
        change(&mut descriptors);
        Self {
            operations: new(config, descriptors).unwrap(),
            script,
            door: door(),
        }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        let answer = self.operations.mcp(&self.door, PEER, request).await;
        Got::of(answer).await
    }

    /// A legacy request of the newest revision.
    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Got {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.send(post(&body.to_string())).await
    }

    pub(crate) async fn call(&self, tool: &str) -> Got {
        self.rpc("tools/call", json!({ "name": tool, "arguments": {} }))
            .await
    }

    /// The names that `tools/list` shows.
    pub(crate) async fn names(&self) -> Vec<String> {
        let got = self.rpc("tools/list", json!({})).await;
        let tools = got.json()["result"]["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// An answer, read.
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) async fn of(answer: ramen_gateway::answer::Answer) -> Self {
        let (parts, body) = answer.into_parts();
        Self {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            let text = String::from_utf8_lossy(&self.body);
            unreachable!("no JSON ({error}): {text}")
        })
    }

    /// The API's error envelope inside a tool error.
    pub(crate) fn refusal(&self) -> Value {
        let body = self.json();
        assert_eq!(body["result"]["isError"], true, "{body}");
        let text = body["result"]["content"][0]["text"].as_str().unwrap();
        let envelope: Value = serde_json::from_str(text).unwrap();
        envelope["error"].clone()
    }
}

/// A POST as a good client sends it.
pub(crate) fn post(body: &str) -> Request<Full<Bytes>> {
    builder()
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}

/// A POST with a good key and host, and nothing else.
pub(crate) fn builder() -> http::request::Builder {
    Request::post("/api/v1/mcp")
        .header("host", "localhost:8080")
        .header("authorization", format!("Bearer {KEY}"))
        .header("mcp-protocol-version", "2025-11-25")
}

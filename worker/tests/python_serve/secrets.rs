//! SEC and RUN07-RUN09: keys, addresses, secret references and what is masked.

use serde_json::json;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{Client, Group, KEY, text_of};
use crate::served::{Served, Setup, each_python, pythons};

/// Without tools there is nothing to start a host for.
fn plain() -> Group {
    Group::new()
        .file(
            "prompts/hello/hello.json",
            json!({"type": "prompt", "name": "hello", "description": "d", "skill": "SKILL.md", "input": {}})
                .to_string(),
        )
        .file("prompts/hello/SKILL.md", "Hello")
}

async fn ping(client: &Client) -> Option<Code> {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    client.send(&ping).await.err().map(|status| status.code())
}

async fn with_header(served: &Served, key: Option<&str>, forwarded: Option<&str>) -> Option<Code> {
    let mut client = Client::new(served.channel().await, key);
    if let Some(forwarded) = forwarded {
        client
            .metadata
            .push(("x-forwarded-for", forwarded.to_owned()));
    }
    ping(&client).await
}

#[tokio::test]
async fn sec02_without_keys_nobody_gets_in() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("none");
    std::fs::write(&empty, "# no key yet\n\n").unwrap();
    let setup = Setup::new(&pythons()[0]).set("RAMEN_KEYS_FILE", &empty.display().to_string());
    let served = setup.serve(&plain()).await;
    for key in [None, Some(""), Some(KEY)] {
        assert_eq!(
            with_header(&served, key, None).await,
            Some(Code::Unauthenticated),
            "{key:?}"
        );
    }
}

#[tokio::test]
async fn sec07_sec08_sec09_the_address_behind_a_proxy_is_the_right_most_one() {
    let setup = Setup::new(&pythons()[0])
        .set("RAMEN_TRUST_PROXY", "1")
        .set("RAMEN_ALLOWED_CIDRS", "10.0.0.0/8,2001:db8::5");
    let served = setup.serve(&plain()).await;
    let denied = Some(Code::PermissionDenied);
    let rows = [
        ("sec07_port", "[2001:db8::5]:443", None),
        ("sec07_brackets", "[2001:db8::5]", None),
        ("sec07_plain", "2001:db8::5", None),
        ("other", "2001:db8::6", denied),
        ("one", "10.0.0.5", None),
        ("one_with_port", "10.0.0.5:1234", None),
        ("sec08", "10.0.0.5, 203.0.113.9", denied),
        ("right_most", "203.0.113.9, 10.0.0.5", None),
        ("sec09_unknown", "unknown", denied),
        ("sec09_garbage", "10.0.0.5, ", denied),
    ];
    for (row, forwarded, wanted) in rows {
        assert_eq!(
            with_header(&served, Some(KEY), Some(forwarded)).await,
            wanted,
            "{row}"
        );
    }
    // The key is judged first.
    let status = with_header(&served, None, Some("203.0.113.9")).await;
    assert_eq!(status, Some(Code::Unauthenticated));
}

#[tokio::test]
async fn sec09_sec10_an_address_outside_is_refused_whatever_it_says_and_health_is_answered() {
    for cidrs in ["203.0.113.0/24", ""] {
        let setup = Setup::new(&pythons()[0])
            .set("RAMEN_TRUST_PROXY", "0")
            .set("RAMEN_ALLOWED_CIDRS", cidrs);
        let served = setup.serve(&plain()).await;
        for forwarded in [None, Some("203.0.113.7")] {
            let status = with_header(&served, Some(KEY), forwarded).await;
            assert_eq!(
                status,
                Some(Code::PermissionDenied),
                "{cidrs:?} {forwarded:?}"
            );
        }
        assert_eq!(served.health().await.unwrap(), ServingStatus::Serving);
        let session = Client::new(served.channel().await, Some(KEY));
        assert_eq!(ping(&session).await, Some(Code::PermissionDenied));
    }
}

fn tools() -> Group {
    Group::new()
        .tool(
            "echo",
            &json!({"text": {"type": "string"}}),
            "def run(text): return ['got', text, len(text)]",
        )
        .tool(
            "fetch",
            &json!({"key": {"type": "string"}}),
            "def run(key):\n    print('asking https://x/?k=' + key)\n    \
             raise ConnectionError('cannot reach https://x/?k=' + key)",
        )
        .tool(
            "leak",
            &json!({"form": {"type": "string"}}),
            "import base64, json, os, urllib.parse\n\
             FORMS = {\n    'raw': str,\n    'repr': repr,\n    'json': json.dumps,\n    \
             'url': urllib.parse.quote,\n    \
             'base64': lambda text: base64.b64encode(text.encode()).decode(),\n}\n\
             def run(form):\n    value = FORMS[form](os.environ['RAMEN_SECRET_G__ODD'])\n    \
             print('printed', value.replace('\\n', '\\\\n'))\n    raise RuntimeError('it was ' + value)",
        )
        .tool(
            "resolves",
            &json!({"text": {"type": "string"}}),
            "from ramen_runtime import secrets\n\
             def run(text):\n    value = secrets.resolve(text)\n    return [len(value), value == 'plain {{$g.KEY}}']",
        )
}

fn with_secrets(python: &str) -> Setup {
    Setup::new(python)
        .secret("KEY", "{{$g.OTHER}}")
        .secret("OTHER", "other-secret")
        .secret("TOKEN", "tok-1234567890")
        .secret("ODD", "a b\n\"c")
        .secret("SHORT", "abc")
        .secret("LONG", "abcdef")
        .set("RAMEN_SECRET_OTHER__X", "foreign-secret")
}

#[tokio::test]
async fn sec13_sec14_references_are_resolved_once_and_foreign_ones_name_only_themselves() {
    each_python(async |python| {
        let served = with_secrets(python).serve(&tools()).await;
        let client = served.client().await;
        // A secret is masked in errors, not in what a tool returns on purpose.
        let text = client.text("echo", json!({"text": "k={{$g.TOKEN}}"})).await;
        assert_eq!(text, r#"["got","k=tok-1234567890",16]"#);
        let text = client.text("echo", json!({"text": "{{$g.token}}"})).await;
        assert_eq!(
            text, r#"["got","tok-1234567890",14]"#,
            "names are upper-cased"
        );
        // SEC13: what a value brings is not looked at again.
        let text = client.text("echo", json!({"text": "{{$g.KEY}}"})).await;
        assert_eq!(text, r#"["got","{{$g.OTHER}}",12]"#);
        assert_eq!(
            client
                .text("resolves", json!({"text": "plain {{$g.KEY}}"}))
                .await,
            "[18,false]"
        );
        let before = served.calls().await;
        for reference in ["{{$other.X}}", "{{$g.NOPE}}", "{{$OTHER.X}}"] {
            let text = format!("x {reference} {{{{$g.TOKEN}}}}");
            let error = client.error("echo", json!({ "text": text })).await;
            assert!(error.contains(reference), "{error}");
            for never in ["foreign", "tok-", "got", "other-secret"] {
                assert!(!error.contains(never), "{error}");
            }
        }
        assert_eq!(served.calls().await, before, "the callable is not called");
        for text in [
            "{{ $g.TOKEN }}",
            "{{$x}}",
            "{$g.TOKEN}",
            "{{$g.TOKEN}",
            "{{$}}",
        ] {
            let answer = client.text("echo", json!({ "text": text })).await;
            assert_eq!(
                answer,
                json!(["got", text, text.len()]).to_string(),
                "left alone"
            );
        }
        let answer = client.tool("echo", json!({"text": "{{$g.}}"})).await;
        assert!(!answer.to_string().contains("secret\""), "{answer}");
        assert!(
            !served.log.text().contains("tok-1234567890"),
            "{}",
            served.log.text()
        );
    })
    .await;
}

#[tokio::test]
async fn run07_a_secret_in_an_error_and_in_the_log_is_one_marker() {
    each_python(async |python| {
        let served = with_secrets(python).serve(&tools()).await;
        let client = served.client().await;
        let error = client.error("fetch", json!({"key": "{{$g.TOKEN}}"})).await;
        assert_eq!(error, "ConnectionError: cannot reach https://x/?k=***");
        served
            .log
            .printed("tools/fetch", "asking https://x/?k=***")
            .await;
        assert!(!served.log.text().contains("tok-1234567890"));
    })
    .await;
}

#[tokio::test]
async fn run08_every_written_form_of_a_secret_is_masked() {
    each_python(async |python| {
        let served = with_secrets(python).serve(&tools()).await;
        let client = served.client().await;
        for form in ["raw", "repr", "json", "url", "base64"] {
            let error = client.error("leak", json!({ "form": form })).await;
            assert!(error.starts_with("RuntimeError: it was "), "{error}");
            assert!(error.contains("***"), "{form}: {error}");
            for never in ["a b", "\"c", "a%20b", "YSBiCiJj"] {
                assert!(!error.contains(never), "{form}: {error}");
            }
        }
        let line = served.log.printed("tools/leak", "printed ***").await;
        assert_eq!(line["stream"], "stdout");
        assert!(!served.log.text().contains("YSBiCiJj"));
    })
    .await;
}

#[tokio::test]
async fn run09_the_longest_secret_is_masked_first() {
    each_python(async |python| {
        let served = with_secrets(python).serve(&tools()).await;
        let client = served.client().await;
        let answer = client.tool("fetch", json!({"key": "abcdef"})).await;
        assert_eq!(
            text_of(&answer),
            "ConnectionError: cannot reach https://x/?k=***"
        );
        let answer = client.tool("fetch", json!({"key": "abc,abcdef"})).await;
        assert_eq!(
            text_of(&answer),
            "ConnectionError: cannot reach https://x/?k=***,***"
        );
    })
    .await;
}

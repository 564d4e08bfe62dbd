//! `ramen_runtime` inside a host, and PRM08/SEC rows of secrets.

use ramen_frame::{Status, ToHost};
use serde_json::json;

use crate::driver::{Event, Group, each_python};

#[test]
fn sec14_and_sec13_secrets_are_resolved_once_and_never_those_of_others() {
    let group = Group::new()
        .tool(
            "resolve",
            &["text"],
            "from ramen_runtime import secrets\ndef run(text): return secrets.resolve(text)",
        )
        .env("RAMEN_SECRET_DEMO__API_KEY", "k1")
        .env("RAMEN_SECRET_DEMO__CHAIN", "{{$demo.API_KEY}}")
        .env("RAMEN_SECRET_OTHER__KEY", "foreign");
    each_python(|python| {
        let mut host = group.start(python);
        for (text, resolved) in [
            ("plain", "plain"),
            (
                "a {{$demo.API_KEY}} b {{$demo.api-key}} {{$demo.api.key}}",
                "a k1 b k1 k1",
            ),
            ("{{$demo.CHAIN}}", "{{$demo.API_KEY}}"),
            ("{{ $demo.API_KEY }}", "{{ $demo.API_KEY }}"),
            (
                "{{$demo}} {{$demo.a b}} {{$demo.",
                "{{$demo}} {{$demo.a b}} {{$demo.",
            ),
            ("{{$x{{$demo.API_KEY}}", "{{$xk1"),
        ] {
            assert_eq!(
                host.call("resolve", &json!({"text": text})).ok_text(),
                resolved
            );
        }
        for reference in [
            "{{$other.KEY}}",
            "{{$demo.NOPE}}",
            "{{$demo.}}",
            "{{$.KEY}}",
        ] {
            let text = format!("x {reference} {{{{$demo.API_KEY}}}}");
            let reply = host.call("resolve", &json!({"text": text}));
            assert_eq!(
                reply.error(),
                format!("SecretNotFound: unknown secret reference {reference}")
            );
        }
    });
}

#[test]
fn run08_a_secret_of_several_lines_is_masked_before_its_lines_are_joined() {
    let group = Group::new()
        .tool(
            "tell",
            &[],
            "import os\ndef run(): raise ValueError('key=' + os.environ['RAMEN_SECRET_DEMO__PEM'])",
        )
        .env("RAMEN_SECRET_DEMO__PEM", "a b\n\"c");
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.run("tell").error(), "ValueError: key=***");
    });
}

#[test]
fn progress_and_log_reach_the_caller_of_the_very_call() {
    let group = Group::new()
        .tool(
            "steps",
            &["n"],
            "from ramen_runtime import log, progress\n\
             def run(n):\n    \
                 progress(n, 10, 'half')\n    \
                 progress(0.5)\n    \
                 log('warning', {'n': n, 'big': 2**70}, logger='me')\n    \
                 log('info', 'text')\n    \
                 return 'done'\n",
        )
        .tool(
            "later",
            &["n"],
            "import asyncio\nfrom ramen_runtime import progress\n\
             async def run(n):\n    \
                 await asyncio.sleep(0)\n    \
                 await asyncio.to_thread(progress, n)\n",
        )
        .tool("nobody", &[], "import threading\nfrom ramen_runtime import cancelled, progress\ndef run():\n    t = threading.Thread(target=progress, args=(1,))\n    t.start()\n    t.join()\n    return cancelled()")
        .tool("wrong", &["n"], "from ramen_runtime import log, progress\ndef run(n): [lambda: log('loud', 1), lambda: progress('1'), lambda: progress(float('nan')), lambda: log('info', {1})][n]()");
    each_python(|python| {
        let mut host = group.start(python);
        let call = host.begin("steps", &json!({"n": 5}));
        assert_eq!(host.result(call).ok_text(), "done");
        let later = host.begin("later", &json!({"n": 7}));
        host.result(later);
        let mut seen = Vec::new();
        for event in host.events.drain(..) {
            match event {
                Event::Progress(of, update) => {
                    seen.push((of, serde_json::to_value(update).unwrap()));
                }
                Event::Log(of, entry) => {
                    seen.push((of, json!([entry.level, entry.logger, entry.data.get()])));
                }
                _ => {}
            }
        }
        let expected = vec![
            (call, json!({"progress": 5, "total": 10, "message": "half"})),
            (call, json!({"progress": 0.5})),
            (
                call,
                json!(["warning", "me", "{\"n\":5,\"big\":1180591620717411303424}"]),
            ),
            (call, json!(["info", null, "\"text\""])),
            (later, json!({"progress": 7})),
        ];
        assert_eq!(seen, expected);
        assert_eq!(host.run("nobody").json(), json!(false));
        for (n, start) in [
            "ValueError: level must be",
            "TypeError: current",
            "ValueError: current",
            "TypeError: Object of type set",
        ]
        .iter()
        .enumerate()
        {
            let reply = host.call("wrong", &json!({"n": n}));
            assert!(reply.error().starts_with(start), "{}", reply.error());
        }
    });
}

#[test]
fn a_cancelled_call_can_ask_and_stop() {
    let source = "from ramen_runtime import cancelled, progress\n\
        def run():\n    \
            progress(0)\n    \
            while not cancelled(): pass\n    \
            return 'stopped'\n";
    let group = Group::new().tool("patient", &[], source).tool(
        "fresh",
        &[],
        "from ramen_runtime import cancelled\ndef run(): return cancelled()",
    );
    each_python(|python| {
        let mut host = group.start(python);
        let call = host.begin("patient", &json!({}));
        while !matches!(host.event(), Some(Event::Progress(id, _)) if id == call) {}
        host.send(&ToHost::Cancel(call));
        assert_eq!(host.result(call).ok_text(), "stopped");
        for _ in 0..20 {
            assert_eq!(host.run("fresh").json(), json!(false));
        }
    });
}

#[test]
fn content_blocks_alone_and_in_lists_are_content() {
    let group = Group::new()
        .tool("one", &[], "from ramen_runtime import content\ndef run(): return content.image(b'\\x89P', 'image/png')")
        .tool("mixed", &[], "from ramen_runtime import content\ndef run(): return ['see', content.link('demo://x', 'x'), {'a': 1}, content.audio(b'w')]")
        .tool("embedded", &[], "from ramen_runtime import content\ndef run(): return [content.resource('demo://t', 'text', 'text/plain', annotations={'priority': 1}), content.resource('demo://b', b'b')]")
        .tool("inside", &[], "from ramen_runtime import content\ndef run(): return {'block': content.text('t')}");
    each_python(|python| {
        let mut host = group.start(python);
        let reply = host.run("one");
        assert_eq!(reply.status, Status::Content);
        assert_eq!(
            reply.json(),
            json!([{"type": "image", "data": "iVA=", "mimeType": "image/png"}])
        );
        let reply = host.run("mixed");
        assert_eq!(reply.status, Status::Content);
        assert_eq!(
            reply.json(),
            json!([
                {"type": "text", "text": "see"},
                {"type": "resource_link", "uri": "demo://x", "name": "x"},
                {"type": "text", "text": "{\"a\":1}"},
                {"type": "audio", "data": "dw==", "mimeType": "audio/wav"},
            ])
        );
        assert_eq!(
            host.run("embedded").json(),
            json!([
                {"type": "resource", "annotations": {"priority": 1},
                 "resource": {"uri": "demo://t", "mimeType": "text/plain", "text": "text"}},
                {"type": "resource", "resource": {"uri": "demo://b", "blob": "Yg=="}},
            ])
        );
        let reply = host.run("inside");
        assert_eq!(reply.status, Status::Json);
        assert_eq!(
            reply.json(),
            json!({"block": {"type": "text", "text": "t"}})
        );
    });
}

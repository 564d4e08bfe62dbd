//! Transcripts under `tests/golden/`: what is sent and, byte for byte, what comes back.
//!
//! ```text
//! # a remark
//! @ unary | session | stdio          a new connection
//! > …                                bytes that arrive (\xNN for bytes that are no text)
//! < …                                bytes that go back
//! .                                  nothing goes back
//! * …                                what is handed to whoever runs code
//! = text|json|content|blob|error …   its outcome, answered by the next `<`
//! ```
//!
//! `GOLDEN_WRITE=1 cargo test -p ramen-mcp --test golden` writes the answers anew.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

#[path = "support/sample.rs"]
mod sample;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ramen_mcp::server::{ListKind, ResourceRead, ToolCall};
use ramen_mcp::{Connection, Outcome, Server, Step, envelope};

enum Pending {
    Tool(ToolCall),
    Resource(ResourceRead),
    None,
}

fn arrive(text: &str) -> Bytes {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(found) = rest.find("\\x") {
        let Some(byte) = rest.get(found + 2..found + 4) else {
            break;
        };
        out.extend_from_slice(&rest.as_bytes()[..found]);
        out.push(u8::from_str_radix(byte, 16).unwrap());
        rest = &rest[found + 4..];
    }
    out.extend_from_slice(rest.as_bytes());
    Bytes::from(out)
}

fn text(bytes: &Bytes) -> &str {
    let text = std::str::from_utf8(bytes).unwrap();
    serde_json::from_str::<serde::de::IgnoredAny>(text).unwrap();
    assert!(!text.contains('\n'), "an answer is one line: {text}");
    text
}

fn play(script: &str, server: &Server) -> String {
    let mut connection = Connection::unary();
    let mut pending = Pending::None;
    let mut out = String::new();
    for line in script.lines() {
        let (kind, rest) = line.split_at_checked(2).unwrap_or((line, ""));
        match kind {
            "< " | "* " | "." => continue,
            _ => writeln!(out, "{line}").unwrap(),
        }
        match kind {
            "@ " => {
                connection = match rest {
                    "unary" => Connection::unary(),
                    "session" => Connection::session(),
                    "stdio" => Connection::stdio(),
                    other => panic!("no connection is called {other}"),
                }
            }
            "> " => pending = answer(&arrive(rest), server, &mut connection, &mut out),
            "= " => {
                let (kind, value) = rest.split_once(' ').unwrap();
                let outcome = match kind {
                    "text" => Outcome::Text(value),
                    "json" => Outcome::Json(value.as_bytes()),
                    "content" => Outcome::Content(value.as_bytes()),
                    "blob" => Outcome::Blob(value.as_bytes()),
                    "error" => Outcome::Error(value),
                    other => panic!("no outcome is called {other}"),
                };
                let reply = match &pending {
                    Pending::Tool(call) => server.tool_reply(call, outcome),
                    Pending::Resource(read) => server.resource_reply(read, outcome),
                    Pending::None => panic!("nothing runs: {line}"),
                };
                writeln!(out, "< {}", text(&reply)).unwrap();
            }
            _ => {}
        }
    }
    out
}

fn answer(body: &Bytes, server: &Server, connection: &mut Connection, out: &mut String) -> Pending {
    let message = match envelope::parse(body) {
        Ok(message) => message,
        Err(reject) => {
            match reject.answer() {
                Some(reply) => writeln!(out, "< {}", text(&reply)).unwrap(),
                None => out.push_str(".\n"),
            }
            return Pending::None;
        }
    };
    match server.step(&message, connection) {
        Step::Reply(reply) => writeln!(out, "< {}", text(&reply)).unwrap(),
        Step::Silent => out.push_str(".\n"),
        Step::Cancel(key) => writeln!(out, "* cancel {key:?}").unwrap(),
        Step::Listen(listen) => {
            writeln!(out, "< {}", text(&listen.acknowledged())).unwrap();
            for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
                if let Some(changed) = listen.changed(kind) {
                    writeln!(out, "< {}", text(&changed)).unwrap();
                }
            }
            writeln!(out, "< {}", text(&listen.end())).unwrap();
        }
        Step::CallTool(call) => {
            let name = &server.catalog().tools()[call.tool].name;
            let (arguments, progress, level) =
                (text(&call.arguments), &call.progress, call.log_level);
            writeln!(
                out,
                "* call {name} {arguments} progress={progress:?} log={level:?}"
            )
            .unwrap();
            return Pending::Tool(call);
        }
        Step::ReadResource(read) => {
            let (entry, arguments) = (read.target.entry, text(&read.target.arguments));
            writeln!(out, "* read {} {entry:?} {arguments}", read.uri).unwrap();
            return Pending::Resource(read);
        }
    }
    Pending::None
}

#[test]
fn golden_transcripts_are_answered_byte_for_byte() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let server = Server::new(
        Arc::new(sample::Sample::new()),
        ramen_mcp::Options::default(),
    );
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 8, "the golden files are there");
    for file in files {
        let script = std::fs::read_to_string(&file).unwrap();
        let played = play(&script, &server);
        if std::env::var_os("GOLDEN_WRITE").is_some() {
            std::fs::write(&file, played).unwrap();
            continue;
        }
        for (at, (is, was)) in played.lines().zip(script.lines()).enumerate() {
            assert_eq!(is, was, "{}:{}", file.display(), at + 1);
        }
        assert_eq!(
            played.len(),
            script.len(),
            "{} has other lines",
            file.display()
        );
    }
}

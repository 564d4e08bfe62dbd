//! Commands over configured MCP servers: `inspect`, `--server`, `bridge --config`, run as a person would.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bad;
mod end;
#[expect(dead_code, reason = "shared with the tests of the client")]
#[path = "../../../client/tests/client/http/support.rs"]
mod http;
mod support;

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use crate::support::{Bridge, CHANGED, Home, SERVER, two};

#[test]
fn call_ls_read_and_prompt_reach_a_server_of_the_configuration() {
    let home = two();
    assert_eq!(
        home.text(&["call", "act", "n=1", "--server", "a"]),
        "a acted\n"
    );
    assert_eq!(home.text(&["read", "sh://r", "--server", "b"]), "of b\n");
    assert_eq!(home.text(&["prompt", "ask", "--server", "b"]), "asked b\n");
    let listed = home.text(&["ls", "--server", "a"]);
    for part in ["act", "[n]", "sh://r", "ask"] {
        assert!(listed.contains(part), "{listed}");
    }
    let failed = home.run(&["call", "act", "n=13", "--server", "a"]);
    assert_eq!(failed.status.code(), Some(5));
    let gone = home.run(&["call", "act", "n=66", "--server", "a"]);
    assert_eq!(
        gone.status.code(),
        Some(6),
        "{}",
        String::from_utf8_lossy(&gone.stderr)
    );
    assert!(String::from_utf8_lossy(&gone.stderr).contains("exit status: 1"));
}

/// A legacy server that tells of other tools in the middle of a call, ends that when it is asked for them, and never says
/// which they are.
const TELLS: &str = r#"
say() { printf '%s\n' "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case "$line" in
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"t","version":"1"}}}';;
    *'"tools/list"'*) if [ -n "$called" ]; then say '{"jsonrpc":"2.0","id":'$called',"result":{"content":[{"type":"text","text":"done"}]}}'; else say '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}}'; fi;;
    *'"tools/call"'*) called=$id; say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}';;
    *'"method":"notifications/'*) ;;
    *) say '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}';;
  esac
done
"#;

#[test]
fn what_is_under_way_when_a_command_ends_the_server_is_no_warning() {
    let home = Home::new(&json!({"tells": {"command": "sh", "args": ["-c", TELLS]}}));
    let output = home.run(&["call", "act", "--server", "tells"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_server_that_is_not_configured_is_told_with_those_that_are() {
    let home = two();
    let output = home.run(&["ls", "--server", "c"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("there are: a, b"), "{errors}");
    std::fs::write(home.path().join("torn.json"), "{").unwrap();
    for file in ["none.json", "torn.json"] {
        for command in [&["ls", "--server", "a"][..], &["inspect"], &["bridge"]] {
            let output = home.run(&[command, &["--config", file]].concat());
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {errors}");
            assert!(errors.contains(file), "{command:?}: {errors}");
        }
    }
}

#[test]
fn inspect_tells_what_a_server_advertised_last_without_starting_it() {
    let home = two();
    let before = home.text(&["inspect"]);
    assert_eq!(before.matches("never seen").count(), 2, "{before}");
    assert_eq!((home.starts("a"), home.starts("b")), (0, 0));
    home.text(&["ls", "tools", "--server", "a"]);
    let starts = home.starts("a");
    let after = home.text(&["inspect", "a"]);
    assert!(
        after.contains("known") && after.contains("2025-11-25") && after.contains("Acts."),
        "{after}"
    );
    let data: Value = serde_json::from_str(&home.text(&["inspect", "-o", "json"])).unwrap();
    assert_eq!(data[0]["tools"][0]["name"], "act");
    assert_eq!(data[0]["server"], "a 1");
    assert_eq!(data[1]["state"], "never seen");
    // An edit makes it void.
    let mut edited = home.entry("a");
    edited["env"]["MORE"] = json!("1");
    home.configure(&json!({"a": edited, "off": {"command": "x", "enabled": false}}));
    let changed = home.text(&["inspect"]);
    assert!(
        changed.contains("configuration changed") && changed.contains("off"),
        "{changed}"
    );
    assert_eq!((home.starts("a"), home.starts("b")), (starts, 0));
}

#[test]
fn a_broken_entry_is_said_and_the_others_are_used() {
    let home = Home::new(&json!({}));
    home.configure(&json!({"a": home.entry("a"), "bad": {"command": "x", "env": {"K": "planted"}, "comand": 1}}));
    let output = home.run(&["call", "act", "--server", "a"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("\"bad\"") && errors.contains("mcp.json") && !errors.contains("planted"),
        "{errors}"
    );
}

#[test]
fn bridge_config_serves_many_servers_as_one() {
    let home = two();
    let file = home.config_file().display().to_string();
    let mut bridge = Bridge::start(home.command(&["bridge", "--config", &file]));
    assert_eq!(bridge.tools(), ["a_act", "b_act"]);
    let called = bridge.ask("tools/call", &json!({"name": "b_act", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], "b acted");
    let prompts = bridge.ask("prompts/list", &json!({}));
    assert_eq!(prompts["result"]["prompts"][1]["name"], "b_ask");
    // One dies in a call: an error that names it, and the other goes on.
    let died = bridge.ask(
        "tools/call",
        &json!({"name": "a_act", "arguments": {"n": 66}}),
    );
    assert!(
        died["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("a: "),
        "{died}"
    );
    let called = bridge.ask("tools/call", &json!({"name": "b_act", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], "b acted");
    assert_eq!(bridge.end(), Some(0));

    // The next one knows the tools, and starts what is used.
    let (a, b) = (home.starts("a"), home.starts("b"));
    let mut bridge = Bridge::start(home.command(&["bridge", "--config", &file]));
    assert_eq!(bridge.tools(), ["a_act", "b_act"]);
    assert_eq!((home.starts("a"), home.starts("b")), (a, b));
    bridge.ask("tools/call", &json!({"name": "b_act", "arguments": {}}));
    assert_eq!((home.starts("a"), home.starts("b")), (a, b + 1));
    assert_eq!(bridge.end(), Some(0));
}

#[test]
fn a_server_that_hangs_at_the_start_holds_up_no_list_and_is_told_when_it_is_there() {
    let home = two();
    let go = home.path().join("go");
    let waits = format!(
        "while [ ! -e '{}' ]; do sleep 0.02; done\n{SERVER}",
        go.display()
    );
    let slow = json!({"command": "sh", "args": ["-c", waits], "env": {"WHO": "slow", "MARK": home.mark("slow")}});
    home.configure(&json!({"a": home.entry("a"), "slow": slow}));
    // So the cache knows it.
    home.text(&["ls", "tools", "--server", "a"]);
    let file = home.config_file().display().to_string();
    let mut bridge = Bridge::start(home.command(&["bridge", "--config", &file]));
    bridge.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(bridge.tools(), ["a_act"]);
    let called = bridge.ask("tools/call", &json!({"name": "a_act", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], "a acted");
    std::fs::write(go, "").unwrap();
    // The first use of `a` may be told, too, and a change before the answer of a list counts as well.
    loop {
        let told = bridge.told;
        if bridge.tools() == ["a_act", "slow_act"] {
            break;
        }
        if bridge.told == told {
            bridge.until(|message| message["method"] == CHANGED);
        }
    }
    assert!(bridge.told > 0);
    assert_eq!(bridge.end(), Some(0));
}

#[test]
fn bridge_server_serves_one_under_its_own_names() {
    let home = two();
    let mut bridge = Bridge::start(home.command(&["bridge", "--server", "b"]));
    assert_eq!(bridge.tools(), ["act"]);
    let called = bridge.ask("tools/call", &json!({"name": "act"}));
    assert_eq!(called["result"]["content"][0]["text"], "b acted");
    assert_eq!(bridge.end(), Some(0));
}

#[test]
fn bridge_arguments_that_do_not_go_together_are_refused() {
    let home = two();
    for args in [
        &["bridge", "http://h/mcp", "--server", "a"][..],
        &["bridge", "--header", "A: b"],
        &["bridge", "http://h/mcp", "--header", "nonsense"],
        &["ls", "--header", "A: b"],
        &["ls", "--server", "a", "--header", "A: b"],
        &["ls", "--server", "http://h/mcp", "--header", "nonsense"],
        &["bridge", "ftp://h/mcp"],
        &["bridge", "not an address"],
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

/// A server that keeps the head of the first request, and answers it with this.
fn answers_once(status: &str) -> (String, std::thread::JoinHandle<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let seen = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines
            .by_ref()
            .map(Result::unwrap)
            .take_while(|line| !line.is_empty())
            .collect();
        stream.write_all(answer.as_bytes()).unwrap();
        head.join("\n")
    });
    (address, seen)
}

#[test]
fn headers_go_to_an_address_and_what_is_secret_in_it_is_shown_nowhere() {
    let home = two();
    let (address, seen) = answers_once("500 no");
    let url = format!("http://me:pl4nted@{address}/mcp?token=pl4nted");
    let header = "X-Key: k3y";
    let output = home.run(&["ls", "tools", "--server", &url, "--header", header]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{errors}");
    let head = seen.join().unwrap().to_lowercase();
    assert!(head.contains("x-key: k3y"), "{head}");
    assert!(errors.contains(&address), "{errors}");
    assert!(
        !errors.contains("pl4nted") && !errors.contains("k3y"),
        "{errors}"
    );
}

//! Keys, and groups that are more than their worker: what the commands say and see of them.

use std::time::Instant;

use serde_json::json;

use crate::files::document;
use crate::servers::{Bridge, SERVER};
use crate::support::{PATIENCE, Place};

#[test]
fn a_key_that_is_refused_is_told_with_its_source_and_the_way_out() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    let said = |args: &[&str], variable: &str| {
        let output = place.ramen(args).env(variable, "rmk_other").output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(6));
        String::from_utf8(output.stderr).unwrap()
    };
    let file = place.write("other.key", "rmk_other\n");
    let named = ["ls", "--key-file", file.to_str().unwrap()];
    for (args, variable, source) in [
        (&["ls"][..], "RAMEN_MCP_KEY", "the key of RAMEN_MCP_KEY"),
        (&["ls"], "RAMEN_BRIDGE_KEY", "RAMEN_BRIDGE_KEY"),
        (&named, "RAMEN_MCP_KEY", "--key-file"),
    ] {
        let said = said(args, variable);
        for part in ["UNAUTHENTICATED", source, "take it away"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("rmk_other"), "{said}");
    }
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_key_counts_when_the_command_that_changed_it_ends() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    let status = up.until("it serves", "demo", |s| {
        s["ready"] == true && s["url"].is_string()
    });
    let url = status["url"].as_str().unwrap();
    let opens = |key: &str| {
        let header = format!("Authorization: Bearer {key}");
        let worker = place.run(&["ls", "--key", key]).code;
        let gateway = place.run(&["ls", "--server", url, "--header", &header]);
        (worker, gateway.code)
    };
    let made = place.run(&["keys", "new", "ci"]);
    assert!(made.err.contains("from now on"), "{made:?}");
    let key = made.out.trim();
    assert_eq!(opens(key), (Some(0), Some(0)));
    let revoked = place.run(&["keys", "revoke", "ci"]);
    assert!(revoked.err.ends_with("no more\n"), "{revoked:?}");
    assert_eq!(opens(key), (Some(6), Some(6)));
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_group_with_upstreams_or_rules_is_one_for_commands_bridge_and_gateway() {
    let place = Place::new();
    let repo = place.repo("demo");
    let script = place.write("clock.sh", SERVER);
    let mark = place.path("mark");
    let upstreams = json!([{"name": "clock", "command": "sh", "args": [script], "env": [
        {"name": "WHO", "value": "clock"}, {"name": "MARK", "value": mark}]}]);
    let upstreams = format!("  upstreams: {upstreams}\n");
    let file = place.write("group.yaml", &document("demo", &repo.bare, &upstreams));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    let deadline = Instant::now() + PATIENCE;
    while !place.run(&["ls"]).out.contains("clock_act") {
        assert!(Instant::now() < deadline, "{:?}", place.run(&["ls"]));
    }
    assert_eq!(place.run(&["call", "clock_act"]).out, "clock acted\n");
    assert_eq!(crate::files::call(&place, "demo"), "42\n");
    let mut bridge = Bridge::start(place.ramen(&["bridge"]));
    let tools = bridge.tools();
    for tool in ["clock_act", "demo_calculator_tool"] {
        assert!(tools.iter().any(|one| one == tool), "{tools:?}");
    }
    assert_eq!(bridge.end(), Some(0));
    let config = place.run(&["bridge", "--print-config", "claude"]).out;
    assert!(
        config.contains("--state-dir") && config.contains("default/demo"),
        "{config}"
    );
    assert!(!config.contains("--target"), "{config}");

    // Rules count as well: the key of the state directory is one that none is about.
    let rules = "  access: {rules: [{keys: [ci], tools: [\"clock_*\"]}]}\n";
    let text = document("demo", &repo.bare, &format!("{upstreams}{rules}"));
    place.write("group.yaml", &text);
    let refused = loop {
        let ran = place.run(&["ls"]);
        if ran.code == Some(6) {
            break ran;
        }
        assert!(Instant::now() < deadline, "{ran:?}");
    };
    for part in ["no access rule", "the key of the state directory"] {
        assert!(refused.err.contains(part), "{refused:?}");
    }
    let key = place.run(&["keys", "new", "ci"]);
    assert_eq!(key.code, Some(0), "{key:?}");
    // At once, as the message says.
    let tools = place.run(&["ls", "tools", "--key", key.out.trim()]);
    assert!(
        tools.out.contains("clock_act") && !tools.out.contains("demo_calculator_tool"),
        "{tools:?}"
    );
    assert_eq!(up.stop(), Some(0));
    place.until_nothing_runs();
}

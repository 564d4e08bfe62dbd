//! `LoadConfig`: the files of Claude, Cursor and VS Code, global and of the project.

use std::path::Path;

use ramen_client::config::{Loaded, PROJECT_FILE, Sources, Transport, load};

fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("t0ken-of-env".to_owned()),
        "HOME_DIR" => Some("/srv/me".to_owned()),
        _ => None,
    }
}

fn read(dir: &Path) -> Loaded {
    load(&Sources {
        global: Some(dir.join("mcp.json")),
        project: Some(dir.join("project").join(PROJECT_FILE)),
        workspace: Some(dir.join("project")),
        env: &env,
    })
}

fn files(global: &str, project: &str) -> (tempfile::TempDir, Loaded) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("project").join(PROJECT_FILE);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    if !global.is_empty() {
        std::fs::write(dir.path().join("mcp.json"), global).unwrap();
    }
    if !project.is_empty() {
        std::fs::write(file, project).unwrap();
    }
    let loaded = read(dir.path());
    (dir, loaded)
}

fn args(loaded: &Loaded, name: &str) -> Vec<String> {
    match &loaded.servers[name].transport {
        Transport::Stdio { args, .. } => args.clone(),
        Transport::Http { .. } => panic!("{name} is no program"),
    }
}

#[test]
fn load_config_merges_the_global_list_with_the_projects_and_a_project_entry_wins() {
    let (_dir, loaded) = files(
        r#"{"mcpServers": {"a": {"command": "x", "args": ["global"]}, "b": {"command": "x", "args": ["global"]}}}"#,
        r#"{"mcpServers": {"b": {"command": "x", "args": ["project"]}, "c": {"command": "x", "args": ["project"]}}}"#,
    );
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    assert_eq!(loaded.servers.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(args(&loaded, "a"), ["global"]);
    assert_eq!(args(&loaded, "b"), ["project"]);
}

#[test]
fn files_that_are_not_there_are_empty_lists() {
    let (_dir, loaded) = files("", "");
    assert!(loaded.servers.is_empty() && loaded.faults.is_empty());
    let (_dir, loaded) = files(" \n", "{}");
    assert!(
        loaded.servers.is_empty() && loaded.faults.is_empty(),
        "{:?}",
        loaded.faults
    );
}

#[test]
fn enabled_missing_means_enabled_and_a_project_can_switch_a_server_off() {
    let (_dir, loaded) = files(
        r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}, "c": {"command": "x", "disabled": true},
            "d": {"command": "x", "enabled": true}, "e": {"command": "x", "enabled": null}}}"#,
        r#"{"mcpServers": {"b": {"enabled": false}}}"#,
    );
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    let on: Vec<_> = loaded
        .servers
        .iter()
        .filter(|(_, s)| s.enabled)
        .map(|(n, _)| n.as_str())
        .collect();
    assert_eq!(on, ["a", "d", "e"]);
}

#[test]
fn the_shapes_of_many_programs_are_read() {
    let (_dir, loaded) = files(
        r#"{"mcpServers": {
            "claude": {"type": "stdio", "command": "x", "alwaysLoad": true, "timeout": 60000},
            "cline": {"command": "x", "autoApprove": ["a"], "disabled": false, "timeout": 60, "transportType": "stdio"},
            "gemini": {"httpUrl": "https://mcp.example/mcp", "trust": true, "includeTools": ["a"], "excludeTools": ["b"]},
            "opencode": {"type": "local", "command": ["bun", "x", "my-server"], "environment": {"KEY": "${TOKEN}"}},
            "roo": {"type": "streamable-http", "url": "https://mcp.example/mcp", "alwaysAllow": [], "watchPaths": ["x"]},
            "windsurf": {"serverUrl": "https://mcp.example/mcp", "disabledTools": ["x"]},
            "zed": {"source": "custom", "command": "x", "args": [], "env": {}}}}"#,
        "",
    );
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    assert_eq!(loaded.servers.len(), 7);
    match &loaded.servers["opencode"].transport {
        Transport::Stdio {
            command, args, env, ..
        } => {
            assert_eq!(
                (command.as_str(), args.as_slice()),
                ("bun", &["x".to_owned(), "my-server".to_owned()][..])
            );
            assert_eq!(env["KEY"].expose(), "t0ken-of-env");
        }
        Transport::Http { .. } => panic!(),
    }
}

#[test]
fn a_field_that_would_let_us_in_is_told_with_what_can_be_done_instead() {
    let (_dir, loaded) = files(
        r#"{"mcpServers": {
            "claude": {"type": "http", "url": "https://mcp.example/mcp", "headersHelper": "/bin/token"},
            "cursor": {"url": "https://mcp.example/mcp", "auth": {"CLIENT_ID": "x"}},
            "typo": {"comand": "x", "url": "https://mcp.example/mcp"}}}"#,
        "",
    );
    let told: Vec<_> = loaded.faults.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].contains("put the header into `headers`"),
        "{}",
        told[0]
    );
    assert!(told[1].contains("--client-id"), "{}", told[1]);
    assert!(
        told[2].contains(r#"the field "comand" is not known: correct its name"#),
        "{}",
        told[2]
    );
}

#[test]
fn an_existing_file_of_another_program_is_read_without_rewriting_it() {
    // Claude Desktop and Claude Code
    let (_dir, loaded) = files(
        r#"{"mcpServers": {
            "files": {"command": "npx", "args": ["-y", "server", "${HOME_DIR}/docs"], "env": {"KEY": "${TOKEN}", "N": 5}},
            "linear": {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}},
            "globalShortcut": "x"}"#,
        "",
    );
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    assert_eq!(args(&loaded, "files"), ["-y", "server", "/srv/me/docs"]);
    match &loaded.servers["files"].transport {
        Transport::Stdio { env, .. } => {
            assert_eq!(env["KEY"].expose(), "t0ken-of-env");
            assert_eq!(env["N"].expose(), "5");
        }
        Transport::Http { .. } => panic!(),
    }
    match &loaded.servers["linear"].transport {
        Transport::Http { url, headers } => {
            assert_eq!(url.to_string(), "https://mcp.example/mcp");
            assert_eq!(headers["Authorization"].expose(), "Bearer t0ken-of-env");
        }
        Transport::Stdio { .. } => panic!(),
    }
    // Cursor
    let (_dir, loaded) = files(
        r#"{"mcpServers": {"a": {"url": "http://localhost:3000/mcp", "headers": {"K": "${env:TOKEN}"}},
                           "b": {"command": "node", "args": ["${workspaceFolder}/s.js"]}}}"#,
        "",
    );
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    assert!(args(&loaded, "b")[0].ends_with("/project/s.js"));
    // VS Code: mcp.json with comments, and its settings
    let (_dir, loaded) = files(
        "{\n  // servers of the team\n  \"servers\": {\"a\": {\"type\": \"stdio\", \"command\": \"x\", \"dev\": {\"watch\": \"src\"},}},\n  \"inputs\": [],\n}",
        r#"{"mcp": {"servers": {"b": {"type": "http", "url": "http://h/mcp", "gallery": true}}}, "editor.tabSize": 2}"#,
    );
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    assert_eq!(loaded.servers.len(), 2);
}

#[test]
fn an_env_file_is_read_and_the_entry_itself_wins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vars");
    std::fs::write(&file, "# c\nexport A=1\nB='two words'\n\nC=\"3\"\n").unwrap();
    let text = format!(
        r#"{{"mcpServers": {{"s": {{"command": "x", "envFile": {:?}, "env": {{"A": "own"}}}}}}}}"#,
        file.display().to_string()
    );
    let (_dir, loaded) = files(&text, "");
    match &loaded.servers["s"].transport {
        Transport::Stdio { env, .. } => {
            let all: Vec<_> = env
                .iter()
                .map(|(k, v)| format!("{k}={}", v.expose()))
                .collect();
            assert_eq!(all, ["A=own", "B=two words", "C=3"]);
        }
        Transport::Http { .. } => panic!(),
    }
}

/// One broken entry in a configuration must never stop the others.
#[test]
fn net12_one_broken_entry_never_stops_the_others_and_is_named_with_its_file() {
    for (entry, part) in [
        (
            r#"{"command": "x", "url": "http://h"}"#,
            "both a command and a url",
        ),
        (r#"{"command": "x", "comand": "y"}"#, "comand"),
        (r#"{"args": []}"#, "neither a command nor a url"),
        (
            r#"{"comand": "x", "args": [], "env": {}}"#,
            r#"neither a command nor a url; the field "comand" is not known"#,
        ),
        (
            r#"{"type": "stdio", "comand": "x"}"#,
            r#"needs a command; the field "comand" is not known"#,
        ),
        (r#"{"command": 5}"#, "command must be a string"),
        (r#"{"command": "  "}"#, "empty"),
        (r#"{"command": "x", "args": "y"}"#, "args must be a list"),
        (r#"{"command": "x", "args": [1]}"#, "args must be a list"),
        (
            r#"{"command": "x", "env": ["A=1"]}"#,
            "env must be an object",
        ),
        (r#"{"command": "x", "env": {"A": {}}}"#, "env.A"),
        (r#"{"command": "x", "env": {"A=B": "1"}}"#, "env.A=B"),
        (r#"{"command": "x", "env": {"A": "${NOT_SET}"}}"#, "NOT_SET"),
        (r#"{"command": "x", "enabled": "yes"}"#, "enabled"),
        (
            r#"{"type": "http", "command": "x"}"#,
            "does not go with a command",
        ),
        (r#"{"type": "stdio", "url": "http://h"}"#, "needs a command"),
        (r#"{"type": "sse", "url": "http://h"}"#, "sse"),
        (r#"{"type": "pigeon", "url": "http://h"}"#, "pigeon"),
        (r#"{"url": "ftp://h/x"}"#, "http"),
        (r#"{"url": "no url"}"#, "url"),
        (r#"{"url": "http://h", "headers": {"a b": "c"}}"#, "a b"),
        (
            r#"{"url": "http://h", "headers": {"a": "x\ny"}}"#,
            "cannot be sent",
        ),
        (r#"{"command": "x", "timeout": -1}"#, "timeout"),
        (r#"{"command": "x", "protocolEra": "stone"}"#, "protocolEra"),
        ("null", "object"),
        ("[]", "object"),
    ] {
        let text = format!(
            r#"{{"mcpServers": {{"good": {{"command": "x"}}, "bad": {entry}, "fine": {{"command": "y"}}}}}}"#
        );
        let (dir, loaded) = files(&text, "");
        assert_eq!(
            loaded.servers.keys().collect::<Vec<_>>(),
            ["fine", "good"],
            "{entry}"
        );
        let [fault] = loaded.faults.as_slice() else {
            panic!("{entry}: {:?}", loaded.faults);
        };
        let shown = fault.to_string();
        assert!(
            shown.contains("\"bad\"") && shown.contains(part),
            "{entry}: {shown}"
        );
        assert_eq!(fault.file, dir.path().join("mcp.json"));
    }
}

#[test]
fn net12_a_broken_file_is_a_fault_and_the_other_file_is_read() {
    for broken in [
        "{",
        "[]",
        "5",
        r#"{"mcpServers": []}"#,
        "{\"mcpServers\": {}} x",
    ] {
        let (dir, loaded) = files(r#"{"mcpServers": {"a": {"command": "x"}}}"#, broken);
        assert_eq!(loaded.servers.len(), 1, "{broken}");
        assert_eq!(loaded.faults.len(), 1, "{broken}");
        assert_eq!(
            loaded.faults[0].file,
            dir.path().join("project").join(PROJECT_FILE)
        );
        assert_eq!(loaded.faults[0].server, None);
    }
}

#[test]
fn a_broken_project_entry_does_not_fall_back_to_the_global_one() {
    let (_dir, loaded) = files(
        r#"{"mcpServers": {"a": {"command": "x"}}}"#,
        r#"{"mcpServers": {"a": {"command": 5}}}"#,
    );
    assert!(loaded.servers.is_empty());
    assert_eq!(loaded.faults.len(), 1);
}

#[test]
fn no_value_is_in_a_fault_or_a_debug_text() {
    let (_dir, loaded) = files(
        r#"{"mcpServers": {
            "a": {"command": "x", "args": ["--key=planted"], "env": {"K": "planted"}},
            "b": {"url": "https://planted:planted@h/mcp?token=planted", "headers": {"Authorization": "Bearer planted"}},
            "c": {"url": "https://h/mcp", "headers": {"X": "planted\n"}},
            "d": {"command": "x", "env": {"K": ["planted"]}},
            "e": {"url": "planted://user:planted@[", "env": {}}}}"#,
        "",
    );
    let shown = format!(
        "{loaded:?} {}",
        loaded
            .faults
            .iter()
            .map(ToString::to_string)
            .collect::<String>()
    );
    assert!(!shown.contains("planted"), "{shown}");
    assert_eq!(loaded.faults.len(), 3, "{shown}");
}

//! What is refused before anything is served, what is passed over, and what `--print-config` prints.

use serde_json::{Value, json};

use crate::ping;
use crate::process::{self, Bridge, output};
use crate::server::Server;

#[tokio::test]
async fn usage_errors_exit_2_and_say_what_to_do() {
    for (args, hint) in [
        (
            &["bridge", "--target", "h:1", "--insecure", "--tls"][..],
            "--insecure",
        ),
        (
            &["bridge", "--target", "h:1", "--insecure", "--ca", "x"],
            "--insecure",
        ),
        (
            &["bridge", "--target", "h:1", "--ca", "/nonexistent.pem"],
            "--ca",
        ),
        // Without a key: nothing would be answered.
        (
            &["bridge", "--target", "h:1", "--oauth", "https://c"],
            "knows no sign-in",
        ),
        // A token that is to be in the keychain must not end up in a file.
        (&["bridge", "http://h/mcp", "--keychain"], "not supported"),
        (
            &["bridge", "http://h/mcp", "--oauth", "https://c"],
            "not supported",
        ),
        (
            &["bridge", "http://h/mcp", "--idle-timeout", "60"],
            "not supported",
        ),
        (&["bridge", "http://h/mcp", "--health"], "asks a worker"),
        (&["ls", "--config", "servers.json"], "--server"),
        (&["bridge", "--target", "not an address"], "bad target"),
        (&["bridge", "--target", "h:1", "--timeout", "0"], "above 0"),
        (&["bridge", "--state-dir", "/nonexistent"], "--target"),
        (
            &["bridge", "--target", "h:1", "--key-file", "/nonexistent"],
            "key file",
        ),
    ] {
        let mut command = process::ramen(args);
        if args.contains(&"--key-file") || args.contains(&"--oauth") {
            command.env_remove("RAMEN_BRIDGE_KEY");
        }
        let out = command
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        // No `ramen up` to find is no wrong usage, but a worker that cannot be reached.
        let wanted = if args.contains(&"--state-dir") { 6 } else { 2 };
        assert_eq!(out.status.code(), Some(wanted), "{args:?}: {err}");
        assert!(err.contains(hint), "{args:?}: {err}");
        assert!(out.stdout.is_empty());
    }
}

#[tokio::test]
async fn a_configuration_with_a_sign_in_of_other_bridges_works_at_a_worker_when_it_has_a_key() {
    let server = Server::start().await;
    let by_flags = [
        "--oauth",
        "https://console.example",
        "--client-id",
        "id",
        "--token-file",
        "/nonexistent/token",
        "--keychain",
        "--idle-timeout",
        "1800",
        "--no-browser",
    ];
    let by_variables = [
        ("RAMEN_BRIDGE_OAUTH", "https://console.example"),
        ("RAMEN_BRIDGE_CLIENT_ID", "id"),
        ("RAMEN_BRIDGE_TOKEN_FILE", "/nonexistent/token"),
        ("RAMEN_BRIDGE_KEYCHAIN", "1"),
        ("RAMEN_BRIDGE_IDLE_TIMEOUT", "1800"),
    ];
    for (flags, variables) in [(&by_flags[..], &[][..]), (&[], &by_variables)] {
        let target = ["bridge", "--target", &server.address];
        let args = [&target[..], flags].concat();
        let mut command = process::ramen(&args);
        command.envs(variables.iter().copied());
        let mut bridge = Bridge::of(command);
        let answer = bridge.ask(ping("1")).await;
        assert!(answer.get("result").is_some(), "{answer}");
        let (status, rest, stderr) = bridge.end().await;
        assert!(status.success(), "{stderr}");
        assert!(rest.is_empty(), "{rest:?}");
        // Said once, with the flag and the variable, since a person sees only one of the two.
        assert_eq!(stderr.matches("passed over").count(), 1, "{stderr}");
        for (name, _) in &by_variables[..4] {
            assert!(stderr.contains(name), "{name}: {stderr}");
        }
        for flag in ["--oauth", "--client-id", "--token-file", "--keychain"] {
            assert!(stderr.contains(flag), "{flag}: {stderr}");
        }
    }
    // Where a worker asks for no key, only a sign-in that was relied on is refused.
    let mut command = process::ramen(&["bridge", "--target", &server.address]);
    command
        .env_remove("RAMEN_BRIDGE_KEY")
        .env("RAMEN_BRIDGE_CLIENT_ID", "id");
    let (status, _, stderr) = Bridge::of(command).end().await;
    assert!(status.success(), "{stderr}");
    assert!(stderr.contains("--client-id"), "{stderr}");
}

#[tokio::test]
async fn the_configuration_to_paste_holds_no_key() {
    for client in ["claude", "cursor", "vscode"] {
        let (code, out, _) = output(&[
            "bridge",
            "--target",
            "h:1",
            "--group",
            "demo",
            "--print-config",
            client,
        ])
        .await;
        assert_eq!(code, Some(0));
        let value: Value = serde_json::from_str(&out).unwrap();
        let servers = value
            .get("mcpServers")
            .or_else(|| value.get("servers"))
            .unwrap();
        assert_eq!(
            servers["demo"]["args"],
            json!(["bridge", "--target", "h:1", "--group", "demo"])
        );
        assert!(
            servers["demo"]["command"]
                .as_str()
                .unwrap()
                .ends_with("ramen")
        );
    }
}

#[tokio::test]
async fn the_configuration_to_paste_names_the_servers_that_were_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mcp.json");
    std::fs::write(&file, r#"{"mcpServers": {"time": {"command": "t"}}}"#).unwrap();
    let path = file.to_str().unwrap();
    for (more, name, args) in [
        (
            &["--config", path][..],
            "servers",
            json!(["bridge", "--config", path]),
        ),
        (
            &["--config", path, "--server", "time"],
            "time",
            json!(["bridge", "--server", "time", "--config", path]),
        ),
    ] {
        let (code, out, err) =
            output(&[&["bridge", "--print-config", "claude"], more].concat()).await;
        assert_eq!(code, Some(0), "{err}");
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["mcpServers"][name]["args"], args, "{out}");
        assert!(value["mcpServers"][name].get("env").is_none(), "{out}");
    }
}

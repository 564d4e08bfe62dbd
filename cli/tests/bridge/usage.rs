//! What is refused before anything is served, and what `--print-config` prints.

use serde_json::{Value, json};

use crate::process::{self, output};

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
        (
            &["bridge", "--target", "h:1", "--oauth", "https://c"],
            "knows no sign-in",
        ),
        (
            &["bridge", "--target", "h:1", "--keychain"],
            "knows no sign-in",
        ),
        (
            &["bridge", "--target", "h:1", "--token-file", "t"],
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
        if args.contains(&"--key-file") {
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

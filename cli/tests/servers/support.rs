//! A home with configured servers, and a bridge over them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

/// A legacy server in `sh`; says who it is by `$WHO`, leaves a mark that it was started in `$MARK`.
pub(crate) const SERVER: &str = r#"
echo started >> "$MARK"
say() { printf '%s\n' "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case "$line" in
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"'$WHO'","version":"1"}}}';;
    *'"tools/list"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"act","description":"Acts.","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}]}}';;
    *'"tools/call"'*'"n":13'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"isError":true,"content":[{"type":"text","text":"bad luck"}]}}';;
    *'"tools/call"'*'"n":66'*) exit 1;;
    *'"tools/call"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"'$WHO' acted"}]}}';;
    *'"resources/list"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"resources":[{"uri":"sh://r","name":"r"}]}}';;
    *'"resources/read"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"contents":[{"uri":"sh://r","text":"of '$WHO'"}]}}';;
    *'"prompts/list"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"prompts":[{"name":"ask"}]}}';;
    *'"prompts/get"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"messages":[{"role":"user","content":{"type":"text","text":"asked '$WHO'"}}]}}';;
    *'"method":"notifications/'*) ;;
    *) say '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}';;
  esac
done
"#;

pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new(servers: &Value) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.configure(servers);
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path().join(".config/ramen/mcp.json")
    }

    pub(crate) fn configure(&self, servers: &Value) {
        let file = self.config_file();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = json!({ "mcpServers": servers }).to_string();
        std::fs::write(file, text).unwrap();
    }

    pub(crate) fn entry(&self, who: &str) -> Value {
        json!({"command": "sh", "args": ["-c", SERVER], "env": {"WHO": who, "MARK": self.mark(who)}})
    }

    pub(crate) fn mark(&self, who: &str) -> String {
        self.path()
            .join(format!("started-{who}"))
            .display()
            .to_string()
    }

    /// How often a server was started.
    pub(crate) fn starts(&self, who: &str) -> usize {
        std::fs::read_to_string(self.mark(who)).map_or(0, |text| text.lines().count())
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ramen"));
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path())
            .current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// What a command that works prints.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn two() -> Home {
    let home = Home::new(&json!({}));
    home.configure(&json!({"a": home.entry("a"), "b": home.entry("b")}));
    home
}

/// A bridge that runs.
pub(crate) struct Bridge {
    pub(crate) child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    next: u64,
    /// How often it told that the tools changed.
    pub(crate) told: usize,
}

pub(crate) const CHANGED: &str = "notifications/tools/list_changed";

impl Bridge {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut bridge = Self {
            child,
            lines,
            next: 1,
            told: 0,
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        assert_eq!(
            bridge.ask("initialize", &hello)["result"]["protocolVersion"],
            "2025-06-18"
        );
        bridge
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.until(|message| message["id"] == id)
    }

    /// Asks without waiting for the answer to the id that is given.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn say(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Reads until something that fits comes.
    pub(crate) fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.next().expect("the bridge is there").unwrap();
            let message: Value = serde_json::from_str(&line).expect("stdout carries messages only");
            self.told += usize::from(message["method"] == CHANGED);
            if fits(&message) {
                return message;
            }
        }
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Closes stdin and waits for the end.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().code()
    }
}

//! An API server that says what a test wants it to say, and the command that asks it.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// A hang guard, never a measure.
const LONG: Duration = Duration::from_mins(1);

/// What is answered to the requests whose path and query begin so.
pub(crate) enum Answer {
    Json(u16, Value),
    /// Events of a watch, each when the test sends it; the watch ends when the sender is dropped.
    Watch(Receiver<Value>),
    /// Nothing, ever.
    Silence,
}

pub(crate) struct Api {
    script: Arc<Mutex<Script>>,
    pub(crate) address: String,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    pub(crate) kubeconfig: tempfile::TempDir,
}

/// The answers of a path in order; the last one is given again and again.
pub(crate) type Script = Vec<(&'static str, VecDeque<Answer>)>;

pub(crate) const GROUPS: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups?";
pub(crate) const WATCH: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups?&watch=true";
pub(crate) const DEMO: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups/demo";
pub(crate) const PODS: &str = "/api/v1/namespaces/team-a/pods?";
pub(crate) const EVENTS: &str = "/api/v1/namespaces/team-a/events?";

impl Api {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let script = Arc::new(Mutex::new(script));
        let (lines, seen) = (Arc::clone(&script), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, seen) = (Arc::clone(&lines), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &script, &seen));
            }
        });
        let kubeconfig = tempfile::tempdir().unwrap();
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {"token": "s3cr3t-token"}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
                {"name": "there", "context": {"cluster": "c", "user": "u"}},
            ],
        });
        std::fs::write(kubeconfig.path().join("config"), text.to_string()).unwrap();
        Self {
            script,
            address,
            asked,
            kubeconfig,
        }
    }

    /// From now on this is answered to a path.
    pub(crate) fn change(&self, path: &str, answer: Answer) {
        let mut script = self.script.lock().unwrap();
        let answers = script.iter_mut().find(|(known, _)| *known == path);
        answers.unwrap().1 = VecDeque::from([answer]);
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = ramen(args);
        command.env("KUBECONFIG", self.kubeconfig.path().join("config"));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }
}

pub(crate) fn ramen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramen"));
    command
        .arg("status")
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent");
    command
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let ran = Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        };
        assert!(
            !format!("{ran:?}").contains("s3cr3t-token"),
            "credentials are shown: {ran:?}"
        );
        ran
    }
}

/// One connection: requests until it closes.
fn serve(stream: TcpStream, script: &Mutex<Script>, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        asked.lock().unwrap().push(target.clone());
        let answer = {
            let mut script = script.lock().unwrap();
            let at = script
                .iter()
                .enumerate()
                .filter(|(_, (path, _))| target.starts_with(path))
                .max_by_key(|(_, (path, _))| path.len())
                .map(|(at, _)| at);
            let Some(at) = at else {
                panic!("nobody expects {target}");
            };
            let answers = &mut script[at].1;
            match answers.front() {
                Some(Answer::Json(code, value)) if answers.len() == 1 => {
                    Answer::Json(*code, value.clone())
                }
                Some(_) => answers.pop_front().unwrap(),
                None => Answer::Silence,
            }
        };
        match answer {
            Answer::Json(code, value) => {
                let text = value.to_string();
                let head = format!(
                    "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    text.len()
                );
                stream.write_all((head + &text).as_bytes()).unwrap();
            }
            Answer::Watch(events) => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).unwrap();
                for event in events {
                    let text = format!("{event}\n");
                    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
                    if stream.write_all(chunk.as_bytes()).is_err() {
                        return;
                    }
                }
                if stream.write_all(b"0\r\n\r\n").is_err() {
                    return;
                }
            }
            Answer::Silence => {
                // Until the other side has had enough.
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}

pub(crate) fn once(value: Value) -> VecDeque<Answer> {
    VecDeque::from([Answer::Json(200, value)])
}

pub(crate) fn list(kind: &str, items: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "100"}, "items": items,
    })
}

pub(crate) fn refusal(code: u16, message: &str, name: Option<&str>) -> VecDeque<Answer> {
    let details = name.map(|name| json!({"name": name, "kind": "mcpgroups"}));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "message": message, "reason": "x", "details": details,
    });
    VecDeque::from([Answer::Json(code, status)])
}

pub(crate) fn group(name: &str, ready: &str, message: &str, version: &str) -> Value {
    json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": {
            "name": name, "namespace": "team-a", "generation": 1, "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "source": {"url": "https://git.example.com/demo.git"},
            "network": {"allowedCIDRs": ["10.0.0.0/8"]},
        },
        "status": {
            "observedGeneration": 1, "tools": 2, "replicas": "1/1",
            "revision": {"serving": "main@sha1:0123456789abcdef"},
            "conditions": [{
                "type": "Ready", "status": ready, "reason": "Serving", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// A command that goes on, and its lines.
pub(crate) struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    pub(crate) fn start(api: &Api, args: &[&str]) -> Self {
        let mut child = api
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(LONG).unwrap()
    }

    pub(crate) fn interrupt(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

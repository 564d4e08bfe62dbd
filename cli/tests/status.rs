//! `ramen status` against an API server that says what a test wants it to say.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// A hang guard, never a measure.
const LONG: Duration = Duration::from_secs(60);

/// What is answered to the requests whose path and query begin so.
enum Answer {
    Json(u16, Value),
    /// Events of a watch, each when the test sends it; the watch ends when the sender is dropped.
    Watch(Receiver<Value>),
    /// Nothing, ever.
    Silence,
}

struct Api {
    script: Arc<Mutex<Script>>,
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    kubeconfig: tempfile::TempDir,
}

/// The answers of a path in order; the last one is given again and again.
type Script = Vec<(&'static str, VecDeque<Answer>)>;

const GROUPS: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups?";
const WATCH: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups?&watch=true";
const DEMO: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups/demo";
const PODS: &str = "/api/v1/namespaces/team-a/pods?";
const EVENTS: &str = "/api/v1/namespaces/team-a/events?";

impl Api {
    fn start(script: Script) -> Self {
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
    fn change(&self, path: &str, answer: Answer) {
        let mut script = self.script.lock().unwrap();
        let answers = script.iter_mut().find(|(known, _)| *known == path);
        answers.unwrap().1 = VecDeque::from([answer]);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = ramen(args);
        command.env("KUBECONFIG", self.kubeconfig.path().join("config"));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }
}

fn ramen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramen"));
    command
        .arg("status")
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent");
    command
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
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

fn once(value: Value) -> VecDeque<Answer> {
    VecDeque::from([Answer::Json(200, value)])
}

fn list(kind: &str, items: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "100"}, "items": items,
    })
}

fn refusal(code: u16, message: &str, name: Option<&str>) -> VecDeque<Answer> {
    let details = name.map(|name| json!({"name": name, "kind": "mcpgroups"}));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "message": message, "reason": "x", "details": details,
    });
    VecDeque::from([Answer::Json(code, status)])
}

fn group(name: &str, ready: &str, message: &str, version: &str) -> Value {
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

#[test]
fn the_exit_code_says_whether_all_groups_are_ready() {
    let (good, bad) = (
        group("good", "True", "serves", "1"),
        group("bad", "False", "the Secret `keys` is missing", "2"),
    );
    let api = Api::start(vec![(GROUPS, once(list("McpGroupList", &[good.clone()])))]);
    let ran = api.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("NAME   READY   REASON"), "{ran:?}");
    assert!(ran.out.contains("main@0123456789"), "{ran:?}");

    let api = Api::start(vec![(GROUPS, once(list("McpGroupList", &[good, bad])))]);
    let ran = api.run(&["-o", "json"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["groups"][0]["name"], "bad");
    assert_eq!(json["groups"][0]["message"], "the Secret `keys` is missing");
    assert_eq!(json["groups"][1]["ready"], true);
}

#[test]
fn namespaces_and_contexts_are_chosen_as_kubectl_does() {
    let nothing = || once(list("McpGroupList", &[]));
    let api = Api::start(vec![
        ("/apis/ramen.dev/v1alpha1/mcpgroups?", nothing()),
        ("/apis/ramen.dev/v1alpha1/namespaces/", nothing()),
    ]);
    for (args, path) in [
        (&["-A"][..], "/apis/ramen.dev/v1alpha1/mcpgroups?"),
        (
            &["-n", "b"],
            "/apis/ramen.dev/v1alpha1/namespaces/b/mcpgroups?",
        ),
        (
            &["--context", "there"],
            "/apis/ramen.dev/v1alpha1/namespaces/default/mcpgroups?",
        ),
        (&[], GROUPS),
    ] {
        let ran = api.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.out.is_empty() && ran.err.contains("no groups in"),
            "{ran:?}"
        );
        assert_eq!(api.asked.lock().unwrap().last().unwrap(), path);
    }
    let ran = api.run(&["--context", "nowhere"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("it has here, there"), "{ran:?}");
}

#[test]
fn one_group_is_told_with_its_pods_events_errors_and_fixes() {
    let mut demo = group("demo", "True", "serves", "1");
    demo["status"]["errors"] = json!([{"package": "tools/x", "reason": "CallableMissing", "message": "x.py does not define f"}]);
    demo["status"]["zones"] = json!([{"name": "default", "replicas": 1, "ready": 1, "updated": 1}]);
    let pod = json!({
        "metadata": {"name": "demo-default-abc", "labels": {"ramen.dev/zone": "default"}},
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {}, "type": "Normal", "reason": "Serving",
        "message": "all pods serve", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let api = Api::start(vec![
        (DEMO, once(demo)),
        (PODS, once(list("PodList", &[pod]))),
        (EVENTS, once(list("EventList", &[event]))),
    ]);
    let ran = api.run(&["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in [
        "team-a/demo  ready",
        "demo-default-abc",
        "main@0123456789",
        "CallableMissing: x.py does not define f",
        "fix: Define the function",
        "all pods serve",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let asked = api.asked.lock().unwrap().join("\n");
    for part in [
        "labelSelector=ramen.dev%2Fgroup%3Ddemo%2Capp.kubernetes.io%2Fcomponent%3Dworker",
        "fieldSelector=involvedObject.kind%3DMcpGroup%2CinvolvedObject.name%3Ddemo",
    ] {
        assert!(asked.contains(part), "{asked}");
    }
    let yaml = api.run(&["demo", "-o", "yaml"]).out;
    assert!(
        yaml.contains("reason: CallableMissing") && yaml.contains("fix: Define"),
        "{yaml}"
    );
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_is_shown() {
    let api = Api::start(vec![
        (DEMO, once(group("demo", "True", "serves", "1"))),
        (
            PODS,
            refusal(403, "pods is forbidden: User \"u\" cannot list", None),
        ),
        (EVENTS, once(list("EventList", &[]))),
    ]);
    let ran = api.run(&["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("not read: pods: pods is forbidden"),
        "{ran:?}"
    );
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    for (answers, args, code, says) in [
        (
            (
                GROUPS,
                refusal(
                    404,
                    "the server could not find the requested resource",
                    None,
                ),
            ),
            &[][..],
            6,
            "install the chart ramen-crds",
        ),
        (
            (
                DEMO,
                refusal(404, "mcpgroups \"demo\" not found", Some("demo")),
            ),
            &["demo"],
            2,
            "there is no group \"demo\"",
        ),
        (
            (
                GROUPS,
                refusal(403, "mcpgroups.ramen.dev is forbidden", None),
            ),
            &[],
            6,
            "ask for `get`, `list` and `watch`",
        ),
        (
            (GROUPS, refusal(401, "Unauthorized", None)),
            &[],
            6,
            "log in again",
        ),
        (
            (
                GROUPS,
                refusal(403, "mcpgroups.ramen.dev is forbidden", None),
            ),
            &["--watch"],
            6,
            "is forbidden",
        ),
    ] {
        let api = Api::start(vec![answers]);
        let ran = api.run(args);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.out.is_empty() && ran.err.contains(says), "{ran:?}");
    }

    let ran = Ran::of(&ramen(&[]).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("there is no kubeconfig"), "{ran:?}");

    let api = Api::start(Vec::new());
    let file = api.kubeconfig.path().join("config");
    std::fs::write(&file, "contexts: [").unwrap();
    let ran = api.run(&[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no good YAML"), "{ran:?}");
}

#[test]
fn a_server_that_is_away_is_named() {
    let api = Api::start(Vec::new());
    // Free at this moment, and nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let file = api.kubeconfig.path().join("config");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&api.address, &free.to_string())).unwrap();
    let ran = api.run(&[]);
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(
        ran.err.contains(&free.to_string()) && ran.err.contains("refused"),
        "{ran:?}"
    );
}

/// A command that goes on, and its lines.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(api: &Api, args: &[&str]) -> Self {
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

    fn line(&self) -> String {
        self.lines.recv_timeout(LONG).unwrap()
    }

    fn interrupt(mut self) -> Option<i32> {
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

#[test]
fn a_watch_shows_each_change_once_and_goes_on_after_a_break() {
    let (first, events) = channel();
    let (second, more) = channel();
    let demo = |ready: &str, message: &str, version: &str| group("demo", ready, message, version);
    let api = Api::start(vec![
        (
            GROUPS,
            VecDeque::from([
                Answer::Json(200, list("McpGroupList", &[demo("False", "starting", "1")])),
                // What happened meanwhile is seen by listing again.
                Answer::Json(
                    200,
                    list(
                        "McpGroupList",
                        &[demo("True", "", "3"), group("other", "True", "", "4")],
                    ),
                ),
            ]),
        ),
        (
            WATCH,
            VecDeque::from([Answer::Watch(events), Answer::Watch(more)]),
        ),
    ]);
    let watching = Watching::start(&api, &["--watch", "-o", "json"]);
    let next = || serde_json::from_str::<Value>(&watching.line()).unwrap();
    assert_eq!(next()["message"], "starting");
    let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
    first
        .send(event("MODIFIED", demo("False", "starting", "2")))
        .unwrap();
    first
        .send(event("MODIFIED", demo("False", "deploying", "2")))
        .unwrap();
    assert_eq!(
        next()["message"],
        "deploying",
        "the same state again is no line"
    );
    let expired = json!({"apiVersion": "v1", "kind": "Status", "code": 410, "message": "too old", "status": "Failure"});
    first.send(event("ERROR", expired)).unwrap();
    drop(first);
    assert_eq!(next()["ready"], true);
    assert_eq!(next()["name"], "other");
    second
        .send(event("DELETED", group("other", "True", "", "5")))
        .unwrap();
    second
        .send(event("MODIFIED", demo("False", "broken", "6")))
        .unwrap();
    assert_eq!(next()["message"], "broken");
    assert_eq!(watching.interrupt(), Some(7));
}

#[test]
fn a_watch_of_one_group_shows_it_again_when_a_pod_changes() {
    let (_groups, no_groups) = channel();
    let (pods, pod_events) = channel();
    let pod = |ready: &str| {
        json!({
            "metadata": {"name": "p", "namespace": "team-a", "resourceVersion": "9"},
            "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        })
    };
    let pod_lists = |ready: &str| Answer::Json(200, list("PodList", &[pod(ready)]));
    let api = Api::start(vec![
        (DEMO, once(group("demo", "True", "", "1"))),
        (
            GROUPS,
            once(list("McpGroupList", &[group("demo", "True", "", "1")])),
        ),
        (
            "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups?&watch=true",
            VecDeque::from([Answer::Watch(no_groups)]),
        ),
        (PODS, VecDeque::from([pod_lists("True")])),
        (
            "/api/v1/namespaces/team-a/pods?&watch=true",
            VecDeque::from([Answer::Watch(pod_events)]),
        ),
        (EVENTS, once(list("EventList", &[]))),
    ]);
    let watching = Watching::start(&api, &["demo", "--watch", "-o", "json"]);
    let next = || serde_json::from_str::<Value>(&watching.line()).unwrap();
    let first = next();
    assert_eq!(first["pods"][0]["ready"], true);
    // From here on the pod is not ready, whoever asks.
    api.change(PODS, pod_lists("False"));
    pods.send(json!({"type": "MODIFIED", "object": pod("False")}))
        .unwrap();
    assert_eq!(next()["pods"][0]["ready"], false);
    assert_eq!(watching.interrupt(), Some(0));
}

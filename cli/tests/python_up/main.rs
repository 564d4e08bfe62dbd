//! `ramen up`, `validate`, `new`, `call` and `ls` with a real worker and real Python.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod burst;
mod faults;
mod files;
mod keys;
#[expect(dead_code, reason = "shared with the tests of other servers")]
#[path = "../servers/support.rs"]
mod servers;
mod support;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{PATIENCE, Place};

const TOOL: &str = "mcp/tools/demo_calculator_tool/demo_calculator_tool.py";
/// The demo tool with another answer where no golden call looks.
const OTHER: &str = "from demo_calculator_tool_utils import apply\n\ndef calculator_func(var1, var2, func):\n    return 43 if var1 == 6 else apply(func, var1, var2)\n";
const BROKEN: &str = "deff calculator_func(var1, var2, func):\n";
const CALL: [&str; 5] = [
    "call",
    "demo_calculator_tool",
    "var1=6",
    "var2=7",
    "func=multiply",
];

#[test]
fn a_folder_is_served_and_follows_each_save() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    let first = up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    assert_eq!(
        (&first["tools"], &first["resources"], &first["prompts"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(place.run(&CALL).out, "42\n");

    let good = std::fs::read_to_string(place.path(&format!("demo/{TOOL}"))).unwrap();
    place.write(&format!("demo/{TOOL}"), OTHER);
    let second = up.until("the save serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string() && s["revision"] != first["revision"]
    });
    assert!(second["tookMs"].is_u64(), "{second}");
    assert_eq!(place.run(&CALL).out, "43\n");

    place.write(&format!("demo/{TOOL}"), BROKEN);
    let third = up.until("the broken save is refused", "demo", |s| {
        s["errors"] != json!([])
    });
    assert_eq!(
        (&third["ready"], &third["revision"]),
        (&json!(true), &second["revision"])
    );
    assert_eq!(third["errors"][0]["reason"], "ImportFailed");
    assert!(third["fixes"]["ImportFailed"].is_string());
    assert_eq!(place.run(&CALL).out, "43\n");

    place.write(&format!("demo/{TOOL}"), &good);
    up.until("the mended save serves", "demo", |s| {
        s["errors"] == json!([]) && s["revision"] == first["revision"]
    });
    assert_eq!(place.run(&CALL).out, "42\n");
    assert_eq!(up.stop(), Some(0));
    place.until_nothing_runs();
}

#[test]
fn a_killed_up_leaves_nothing_behind_and_the_next_one_heals() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    let first = up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    // A deploy that takes its time, so that the kill comes in the middle of it.
    let slow = format!(
        "import os, time\nwhile not os.path.exists({:?}): time.sleep(0.01)\n{OTHER}",
        place.path("go")
    );
    place.write(&format!("demo/{TOOL}"), &slow);
    up.until("the deploy runs", "demo", |s| {
        s["message"].as_str().unwrap().starts_with("deploying")
    });
    up.kill();
    place.until_nothing_runs();

    let mut up = place.up(&[dir.to_str().unwrap()]);
    let again = up.until("the last good serves", "demo", |s| {
        s["ready"] == true && s["tools"] == 1
    });
    assert_eq!(again["revision"], first["revision"]);
    // What is remembered is not told as serving before it does.
    for state in up.all().iter().filter(|s| s["ready"] == false) {
        assert_eq!(
            (&state["revision"], &state["tools"]),
            (&Value::Null, &json!(0))
        );
    }
    assert_eq!(place.run(&CALL).out, "42\n");
    place.write("go", "");
    up.until("the interrupted revision serves", "demo", |s| {
        s["revision"] != first["revision"] && s["ready"] == true
    });
    assert_eq!(place.run(&CALL).out, "43\n");
    assert_eq!(up.stop(), Some(0));
    place.until_nothing_runs();
}

#[test]
fn a_worker_that_dies_is_started_again_at_the_same_address() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    let first = up.until("it serves", "demo", |s| {
        s["ready"] == true && s["address"].is_string()
    });
    let file = place.path("state/groups/default.demo/address.json");
    let address: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let pid = i32::try_from(address["pid"].as_i64().unwrap()).unwrap();
    let mark = up.mark();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL)
        .unwrap();
    up.until_after(mark, "its end is seen", |s| s["ready"] == false);
    let again = up.until("it serves again", "demo", |s| s["ready"] == true);
    assert_eq!(again["address"], first["address"]);
    assert_eq!(place.run(&CALL).out, "42\n");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn sigint_in_the_middle_of_a_deploy_ends_everything() {
    let place = Place::new();
    let dir = place.demo("demo");
    place.write(
        &format!("demo/{TOOL}"),
        "import time\nwhile True: time.sleep(1)\n",
    );
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("the deploy runs", "demo", |s| {
        s["message"].as_str().unwrap().starts_with("deploying")
    });
    up.signal(Signal::INT);
    assert_eq!(up.child.wait().unwrap().code(), Some(0));
    place.until_nothing_runs();
}

#[test]
fn one_state_directory_has_one_up_and_another_says_so() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    let second = place.run(&["up", dir.to_str().unwrap()]);
    assert_eq!(second.code, Some(2));
    assert!(second.err.contains("another `ramen up`"), "{}", second.err);
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn the_key_is_in_a_private_file_and_in_no_output() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    let file = place.path("state/groups/default.demo/keys/mcp-key");
    let key = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let said = format!("{:?}{}", up.all(), up.log());
    assert!(said.contains("mcp-key") && !said.contains(&key));
    let config = place.run(&["bridge", "--print-config", "claude"]).out;
    assert!(config.contains("--key-file") && !config.contains(&key));
    // Without the key the door stays shut.
    let target = up.until("its address", "demo", |s| s["address"].is_string())["address"]
        .as_str()
        .unwrap()
        .to_owned();
    let refused = place.run(&["ls", "--target", &target]);
    assert_eq!(refused.code, Some(6));
    assert!(refused.err.contains("UNAUTHENTICATED"), "{}", refused.err);
    let log = std::fs::read_to_string(place.path("state/groups/default.demo/worker.log")).unwrap();
    assert!(!log.contains(&key));
}

#[test]
fn nobody_else_can_look_into_the_state_directory_whoever_made_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let dir = place.demo("demo");
    let state = place.path("state");
    let open_to_others = || {
        let entries = std::fs::read_dir(&state).unwrap().flatten();
        let all = entries.map(|entry| entry.path()).chain([state.clone()]);
        let open = all.filter(|path| {
            let mode = std::fs::symlink_metadata(path).unwrap().permissions();
            mode.mode() & 0o077 != 0
        });
        open.collect::<Vec<_>>()
    };
    assert_eq!(
        place.run(&["validate", dir.to_str().unwrap()]).code,
        Some(0)
    );
    assert_eq!(open_to_others(), Vec::<std::path::PathBuf>::new());
    // As earlier versions left it.
    for open in [&state, &state.join("store")] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    assert_eq!(open_to_others(), Vec::<std::path::PathBuf>::new());
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn ls_and_call_speak_for_people_and_for_programs() {
    let place = Place::new();
    let dir = place.demo("demo");
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    let table = place.run(&["ls"]).out;
    assert!(
        table.starts_with("KIND ") && table.contains("var1,var2,func"),
        "{table}"
    );
    let json: Value =
        serde_json::from_str(&place.run(&["ls", "prompts", "-o", "json"]).out).unwrap();
    assert_eq!(json["prompts"][0]["name"], "demo_explain_prompt");
    assert!(
        place
            .run(&["ls", "tools", "--output", "yaml"])
            .out
            .starts_with("tools:")
    );
    let call: Value =
        serde_json::from_str(&place.run(&[&CALL[..], &["-o", "json"]].concat()).out).unwrap();
    assert_eq!(call["content"][0]["text"], "42");
    let failed = place.run(&[
        "call",
        "demo_calculator_tool",
        "var1=1",
        "var2=0",
        "func=divide",
    ]);
    assert_eq!(
        (failed.code, failed.err.trim()),
        (Some(5), "error: ZeroDivisionError: division by zero")
    );
    assert_eq!(
        place.run(&["call", "demo_calculator_tool", "var1=x"]).code,
        Some(2)
    );
    let unknown = place.run(&["call", "nope", "a=1"]);
    assert!(
        unknown.code == Some(2) && unknown.err.contains("demo_calculator_tool"),
        "{unknown:?}"
    );
    let text = r#"{"var1": 6, "var2": 7, "func": "multiply"}"#;
    assert_eq!(
        place
            .run(&["call", "demo_calculator_tool", "--json", text])
            .out,
        "42\n"
    );
}

#[test]
fn read_and_prompt_give_what_a_client_would_get() {
    let place = Place::new();
    let dir = place.demo("demo");
    place.write(
        "demo/mcp/resources/logo/logo.json",
        r#"{"type": "resource", "name": "logo", "description": "d", "uri": "demo://logo", "mime_type": "image/png", "callable": "read"}"#,
    );
    place.write(
        "demo/mcp/resources/logo/logo.py",
        "def read():\n    return b'\\x89PNG'\n",
    );
    place.write(
        "demo/mcp/resources/sick/sick.json",
        r#"{"type": "resource", "name": "sick", "description": "d", "uri": "demo://sick", "mime_type": "text/plain", "callable": "read"}"#,
    );
    place.write(
        "demo/mcp/resources/sick/sick.py",
        "def read():\n    raise OSError('gone')\n",
    );
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    let readme = place.run(&["read", "demo://readme"]);
    assert!(
        readme.code == Some(0) && readme.out.starts_with("# "),
        "{readme:?}"
    );
    let json: Value =
        serde_json::from_str(&place.run(&["read", "demo://readme", "-o", "json"]).out).unwrap();
    assert_eq!(json["contents"][0]["uri"], "demo://readme");
    let logo = place.ramen(&["read", "demo://logo"]).output().unwrap();
    assert_eq!(logo.stdout, b"\x89PNG");
    let sick = place.run(&["read", "demo://sick"]);
    assert!(
        sick.code == Some(5) && sick.err.contains("OSError: gone"),
        "{sick:?}"
    );
    let unknown = place.run(&["read", "demo://nope"]);
    assert!(
        unknown.code == Some(2) && unknown.err.contains("demo://readme"),
        "{unknown:?}"
    );

    let prompt = [
        "prompt",
        "demo_explain_prompt",
        "expression=6 * 7",
        "reader=a child",
    ];
    let text = place.run(&prompt);
    assert!(
        text.code == Some(0) && text.out.contains("a child") && text.out.contains("## Settings"),
        "{text:?}"
    );
    let yaml = place.run(&[&prompt[..], &["-o", "yaml"]].concat());
    assert!(yaml.out.contains("role: user"), "{yaml:?}");
    let missing = place.run(&["prompt", "demo_explain_prompt"]);
    assert!(
        missing.code == Some(2) && missing.err.contains("is missing"),
        "{missing:?}"
    );
    let unknown = place.run(&["prompt", "nope"]);
    assert!(
        unknown.code == Some(2) && unknown.err.contains("demo_explain_prompt"),
        "{unknown:?}"
    );
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_port_in_use_ends_the_start_with_who_has_it_and_what_to_do() {
    let place = Place::new();
    let dir = place.demo("demo");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let refused = place.run(&["up", dir.to_str().unwrap(), "--listen", &address]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let who = format!("{address} is in use by ");
    for part in [who.as_str(), "(process ", "--listen"] {
        assert!(refused.err.contains(part), "{refused:?}");
    }
    place.until_nothing_runs();
}

#[test]
fn run01_run02_prints_and_children_of_a_tool_never_reach_the_pipe() {
    use std::io::{BufRead as _, Write as _};
    let place = Place::new();
    let dir = place.demo("demo");
    let noisy = "import os, subprocess, sys\n\ndef calculator_func(var1, var2, func):\n    if var1 == 6:\n        \
        os.write(1, b'raw bytes\\n')\n        print('printed', flush=True)\n        print('error', file=sys.stderr)\n        \
        subprocess.run(['echo', 'from a child'])\n        return float(subprocess.run(['cat'], capture_output=True, text=True).stdout + '13')\n    \
        from demo_calculator_tool_utils import apply\n    return apply(func, var1, var2)\n";
    place.write(&format!("demo/{TOOL}"), noisy);
    let mut up = place.up(&[dir.to_str().unwrap()]);
    up.until("it serves", "demo", |s| s["ready"] == true);
    let mut bridge = place
        .ramen(&["bridge"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo_calculator_tool","arguments":{"var1":6,"var2":7,"func":"add"}}}"#;
    let mut stdin = bridge.stdin.take().unwrap();
    writeln!(stdin, "{call}").unwrap();
    let mut lines = std::io::BufReader::new(bridge.stdout.take().unwrap()).lines();
    let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "13.0");
    drop(stdin);
    assert!(lines.next().is_none());
    assert_eq!(bridge.wait().unwrap().code(), Some(0));
    let log = place.path("state/groups/default.demo/worker.log");
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(&log).unwrap();
        if ["raw bytes", "printed", "from a child"]
            .iter()
            .all(|word| text.contains(word))
        {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{text}");
        std::thread::yield_now();
    }
}

#[test]
fn whatever_new_makes_validates_and_answers() {
    let place = Place::new();
    let base = place.path("");
    assert_eq!(
        place
            .run(&["new", "group", "fresh", "--dir", base.to_str().unwrap()])
            .code,
        Some(0)
    );
    let dir = place.path("fresh");
    let dir = dir.to_str().unwrap();
    for (kind, name) in [
        ("tool", "read-file"),
        ("resource", "notes"),
        ("prompt", "Review_it"),
    ] {
        let made = place.run(&["new", kind, name, "--dir", dir]);
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(
            place
                .run(&["new", kind, name, "--dir", dir])
                .err
                .contains("there already")
        );
    }
    assert_eq!(
        place.run(&["new", "tool", "1bad", "--dir", dir]).code,
        Some(2)
    );
    assert_eq!(
        place.run(&["new", "tool", "lost", "--dir", "/"]).code,
        Some(2)
    );
    for flags in [&["--no-install"][..], &[]] {
        let checked = place.run(&[&["validate", dir, "-o", "json"], flags].concat());
        let report: Value = serde_json::from_str(&checked.out).unwrap();
        assert_eq!(
            (checked.code, &report["errors"], &report["warnings"]),
            (Some(0), &json!([]), &json!([]))
        );
        assert_eq!(report["packages"].as_array().unwrap().len(), 4);
    }
    let mut up = place.up(&[dir]);
    up.until("it serves", "fresh", |s| {
        s["ready"] == true && s["tools"] == 2
    });
    assert_eq!(
        place.run(&["call", "hello", "name=Ada"]).out,
        "Hello, Ada!\n"
    );
    assert_eq!(
        place.run(&["call", "read-file", "text=a"]).out,
        "You said: a\n"
    );
}

#[test]
fn validate_tells_by_its_exit_code_and_names_the_fix() {
    let place = Place::new();
    let dir = place.demo("demo");
    let dir = dir.to_str().unwrap();
    assert_eq!(place.run(&["validate", dir]).code, Some(0));
    // One broken package beside a good one: partly ok.
    place.write(
        "demo/mcp/tools/bad/bad.json",
        r#"{"type":"tool","name":"worse","callable":"f","input":{}}"#,
    );
    place.write("demo/mcp/tools/bad/bad.py", "def f(): pass\n");
    for flags in [&["--no-install"][..], &[]] {
        let ran = place.run(&[&["validate", dir], flags].concat());
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(
            ran.out.contains("NameMismatch") && ran.out.contains("fix:"),
            "{}",
            ran.out
        );
    }
    place.write(&format!("demo/{TOOL}"), BROKEN);
    let ran = place.run(&["validate", dir]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.out.contains("ImportFailed") && ran.out.contains("GoldenFailed"),
        "{}",
        ran.out
    );
    assert_eq!(place.run(&["validate", "/nonexistent"]).code, Some(2));
    let empty = place.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let ran = place.run(&["validate", empty.to_str().unwrap()]);
    assert!(
        ran.code == Some(4) && ran.out.contains("McpFolderMissing"),
        "{ran:?}"
    );
}

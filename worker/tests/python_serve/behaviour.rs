//! RUN: what tools do beside returning: print, raise, read their environment, run coroutines.

use serde_json::{Value, json};

use crate::harness::{Group, text_of};
use crate::served::{Setup, each_python};

/// `(tool, source, text of the error)`.
const RAISES: &[(&str, &str, &str)] = &[
    (
        "run03",
        "def run(): raise KeyboardInterrupt",
        "KeyboardInterrupt",
    ),
    (
        "run03_text",
        "def run(): raise KeyboardInterrupt('stop')",
        "KeyboardInterrupt: stop",
    ),
    (
        "run03_exit",
        "import sys\ndef run(): sys.exit(3)",
        "SystemExit: 3",
    ),
    (
        "run03_gen",
        "def run(): raise GeneratorExit",
        "GeneratorExit",
    ),
    (
        "run03_async",
        "async def run(): raise KeyboardInterrupt",
        "KeyboardInterrupt",
    ),
    ("run05", "def run(): raise ValueError()", "ValueError"),
    (
        "run06",
        "def run():\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n        \
         raise LookupError('outer') from error",
        "LookupError: outer",
    ),
    (
        "run06_group",
        "def run(): raise ExceptionGroup('two', [ValueError('a'), TypeError('b')])",
        "ExceptionGroup: two (2 sub-exceptions): ValueError: a; TypeError: b",
    ),
    (
        "run06_lines",
        "def run(): raise RuntimeError('first\\n  second\\r\\nthird')",
        "RuntimeError: first second third",
    ),
    (
        "run06_own_type",
        "class OddError(Exception): pass\ndef run(): raise OddError('x')",
        "OddError: x",
    ),
    (
        "bad_str",
        "class Bad(Exception):\n    def __str__(self): raise RuntimeError\ndef run(): raise Bad()",
        "Bad: <str() of it raised RuntimeError>",
    ),
    (
        "memory",
        "def run(): return b'x' * (1 << 60)",
        "MemoryError",
    ),
    (
        "files",
        "def run():\n    kept = []\n    while True: kept.append(open('/dev/null'))",
        "OSError: [Errno 24] Too many open files: '/dev/null'",
    ),
    (
        "syntax",
        "def run(): exec('1 +')",
        "SyntaxError: invalid syntax (<string>, line 1)",
    ),
];

#[tokio::test]
async fn run03_run05_run06_whatever_is_raised_is_one_line_and_the_worker_lives() {
    let group = RAISES
        .iter()
        .fold(Group::new(), |group, (name, source, _)| {
            group.tool(name, &json!({}), source)
        });
    each_python(async |python| {
        let mut served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        for (name, _, wanted) in RAISES {
            assert_eq!(client.error(name, json!({})).await, *wanted, "{name}");
        }
        served.assert_alive();
        assert_eq!(served.metric("ramen_host_restarts_total").await, 0);
    })
    .await;
}

#[tokio::test]
async fn run06_an_error_names_no_path_and_has_no_traceback() {
    let source = "import os\ndef run(): open(os.path.join(os.path.dirname(__file__), 'nope.txt'))";
    let group = Group::new().tool("reads", &json!({}), source);
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let error = served.client().await.error("reads", json!({})).await;
        assert!(error.starts_with("FileNotFoundError: "), "{error}");
        assert!(error.contains("nope.txt"), "{error}");
        for never in [
            "Traceback",
            "File \"",
            &*served.dir().to_string_lossy(),
            "\n",
        ] {
            assert!(!error.contains(never), "{error}");
        }
        assert!(!served.log.text().contains("Traceback"));
    })
    .await;
}

#[tokio::test]
async fn a_failed_call_is_a_line_of_the_log_with_its_place_and_without_what_was_sent() {
    let source = "from deep import dig\n\ndef run(text):\n    return dig(text)\n";
    let helper = "import json\n\ndef dig(text):\n    return json.loads(text)\n";
    let later = "async def run(text):\n    raise LookupError(text)\n";
    let input = json!({"text": {"type": "string"}});
    let group = Group::new()
        .tool("digs", &input, source)
        .file("tools/digs/utils/deep.py", helper)
        .tool("later", &input, later)
        .resource(
            "sick",
            "sick://one",
            "text/plain",
            "def run():\n    raise OSError(5, 'x')\n",
        );
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        for tool in ["digs", "later"] {
            client.error(tool, json!({"text": "what-was-sent"})).await;
        }
        client
            .rpc("resources/read", json!({"uri": "sick://one"}))
            .await;
        for (package, exception, place) in [
            // The last line of the author's own code, not the library's.
            ("tools/digs", "JSONDecodeError", "utils/deep.py, line 4"),
            ("tools/later", "LookupError", "later.py, line 2"),
            ("resources/sick", "OSError", "sick.py, line 2"),
        ] {
            let line = served
                .log
                .line(package, |line| {
                    line["message"] == "a call failed in its code" && line["package"] == package
                })
                .await;
            assert_eq!(
                (&line["exception"], &line["place"]),
                (&json!(exception), &json!(place))
            );
        }
        assert!(
            !served.log.text().contains("what-was-sent"),
            "{}",
            served.log.text()
        );
    })
    .await;
}

#[tokio::test]
async fn run01_run02_what_is_printed_goes_to_the_log_with_the_name_and_stdin_is_empty() {
    let group = Group::new()
        .tool(
            "prints",
            &json!({}),
            "import os, subprocess, sys\n\
             def run():\n    os.write(1, b'raw bytes\\n')\n    print('printed')\n    \
             print('to stderr', file=sys.stderr)\n    subprocess.run(['echo', 'from a child'])\n    \
             os.write(2, b'{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\\n')\n    return 'done'",
        )
        .tool(
            "cat",
            &json!({}),
            "import subprocess, sys\n\
             def run():\n    child = subprocess.run(['cat'], capture_output=True)\n    \
             return [child.returncode, child.stdout.decode(), sys.stdin.read()]",
        )
        .tool(
            "shouts",
            &json!({}),
            "def run():\n    print('x' * 1_000_000)\n    print('after')\n    return 'done'",
        );
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        assert_eq!(client.text("prints", json!({})).await, "done");
        for text in ["raw bytes", "printed", "to stderr", "from a child"] {
            let line = served.log.printed("tools/prints", text).await;
            let stream = if text == "to stderr" {
                "stderr"
            } else {
                "stdout"
            };
            assert_eq!(line["stream"], stream);
        }
        assert_eq!(client.text("cat", json!({})).await, r#"[0,"",""]"#);
        assert_eq!(client.text("shouts", json!({})).await, "done");
        served.log.printed("tools/shouts", "after").await;
        assert!(served.log.text().len() < 200_000, "long lines are cut");
    })
    .await;
}

#[tokio::test]
async fn run10_unknown_names_are_answered_with_the_name_alone() {
    let group = Group::new().tool("known_tool", &json!({}), "def run(): pass");
    let rows = [
        ("tools/call", json!({"name": "nope", "arguments": {}})),
        ("prompts/get", json!({"name": "nope"})),
        ("resources/read", json!({"uri": "demo://nope"})),
        ("no/such/method", json!({})),
    ];
    each_python(async |python| {
        let setup = Setup::new(python).secret("TOKEN", "s3cr3t-value");
        let served = setup.serve(&group).await;
        let client = served.client().await;
        for (method, params) in &rows {
            let answer = client.rpc(method, params.clone()).await;
            let error = answer["error"].as_object().unwrap();
            assert!(error["message"].as_str().unwrap().len() < 80, "{answer}");
            let text = answer.to_string();
            for never in [
                "known_tool",
                "s3cr3t",
                "RAMEN_",
                &*served.dir().to_string_lossy(),
            ] {
                assert!(!text.contains(never), "{answer}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn run15_run16_coroutines_share_one_loop_and_plain_tools_may_run_their_own() {
    let group = Group::new()
        .tool(
            "locked",
            &json!({"n": {"type": "integer"}}),
            "import asyncio\nlock = asyncio.Lock()\ninside = 0\n\
             async def run(n):\n    global inside\n    async with lock:\n        inside += 1\n        \
             alone = inside\n        await asyncio.sleep(0.01)\n        inside -= 1\n    return [n, alone]",
        )
        .tool(
            "task",
            &json!({}),
            "import asyncio\nloops = []\n\
             async def run():\n    loops.append(asyncio.get_running_loop())\n    \
             return [len(loops), len(set(map(id, loops)))]",
        )
        .tool(
            "own_loop",
            &json!({}),
            "import asyncio\nasync def work():\n    await asyncio.sleep(0)\n    return 'own'\n\
             def run(): return asyncio.run(work())",
        );
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_HOSTS", "1");
        let served = setup.serve(&group).await;
        let client = served.client().await;
        for _ in 0..2 {
            let calls = (0..6).map(|n| client.text("locked", json!({ "n": n })));
            let texts = futures::future::join_all(calls).await;
            for (n, text) in texts.iter().enumerate() {
                assert_eq!(*text, format!("[{n},1]"));
            }
        }
        assert_eq!(client.text("task", json!({})).await, "[1,1]");
        assert_eq!(client.text("own_loop", json!({})).await, "own");
        assert_eq!(client.text("own_loop", json!({})).await, "own");
        assert_eq!(client.text("task", json!({})).await, "[2,1]");
    })
    .await;
}

#[tokio::test]
async fn run17_a_tool_sees_the_secrets_of_its_group_and_no_other_credential() {
    let group = Group::new()
        .file("env.yaml", "REGION: eu\nAPI: \"token {{$g.TOKEN}}\"\nLICENCE: \"{{$g.NOPE}}\"\n")
        .tool("env", &json!({}), "import os\ndef run(): return dict(os.environ)")
        .tool(
            "parent",
            &json!({}),
            "import os\ndef run():\n    fds = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') \
             if os.path.lexists(f'/proc/self/fd/{n}')]\n    return [fds, open('/proc/self/cmdline').read()]",
        );
    each_python(async |python| {
        let setup = Setup::new(python)
            .secret("TOKEN", "own-secret")
            .set("RAMEN_SECRET_OTHER__TOKEN", "foreign-secret")
            .set("AWS_SECRET_ACCESS_KEY", "machine-secret")
            .set("HTTPS_PROXY", "http://user:proxy-secret@proxy");
        let served = setup.serve(&group).await;
        let client = served.client().await;
        let text = client.text("env", json!({})).await;
        let env: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(env["RAMEN_SECRET_G__TOKEN"], "own-secret");
        assert_eq!(
            (&env["REGION"], &env["API"]),
            (&json!("eu"), &json!("token own-secret"))
        );
        assert!(env.get("LICENCE").is_none());
        let named: Vec<&String> = env.as_object().unwrap().keys().collect();
        for name in &named {
            assert!(
                !name.starts_with("RAMEN_") || **name == "RAMEN_SECRET_G__TOKEN",
                "{named:?}"
            );
        }
        for never in [
            "foreign-secret",
            "machine-secret",
            "proxy-secret",
            "rmk_",
            "admin_test",
        ] {
            assert!(!text.contains(never), "{never} in {text}");
        }
        let answer = client.tool("parent", json!({})).await;
        let text = text_of(&answer);
        for never in ["keys", "admin", "rmk_"] {
            assert!(!text.contains(never), "{never} in {text}");
        }
    })
    .await;
}

#[tokio::test]
async fn run17_variables_that_the_platform_names_reach_the_code_and_win_over_env_yaml() {
    let group = Group::new()
        .file("env.yaml", "API_BASE: https://test\nREGION: eu\n")
        .tool(
            "env",
            &json!({}),
            "import os\nAT_IMPORT = os.environ.get('API_BASE')\ndef run(): return [AT_IMPORT, dict(os.environ)]",
        );
    each_python(async |python| {
        let setup = Setup::new(python)
            .set("RAMEN_HOST_ENV", "HTTPS_PROXY,API_BASE,UNSET")
            .set("HTTPS_PROXY", "http://proxy:3128")
            .set("API_BASE", "https://prod")
            .set("NOT_NAMED", "x");
        let served = setup.serve(&group).await;
        let client = served.client().await;
        let text = client.text("env", json!({})).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer[0], "https://prod");
        let env = &answer[1];
        for (name, value) in [
            ("API_BASE", "https://prod"),
            ("HTTPS_PROXY", "http://proxy:3128"),
            ("REGION", "eu"),
        ] {
            assert_eq!(env[name], value, "{env}");
        }
        for name in ["UNSET", "NOT_NAMED", "RAMEN_HOST_ENV"] {
            assert!(env.get(name).is_none(), "{env}");
        }
    })
    .await;
}

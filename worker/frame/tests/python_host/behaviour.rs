//! RUN: what tools do to the process they run in.

use std::{io::Read as _, os::unix::process::ExitStatusExt as _};

use ramen_frame::ToHost;
use serde_json::json;

use crate::driver::{Group, Python, each_python};

#[test]
fn run03_exits_and_interrupts_are_errors_of_the_call_and_the_host_lives() {
    let group = Group::new()
        .tool("stop", &[], "def run(): raise KeyboardInterrupt")
        .tool("leave", &[], "import sys\ndef run(): sys.exit(3)")
        .tool("quit", &[], "def run(): raise SystemExit")
        .tool("exit", &[], "def run(): exit('gone')")
        .tool("fine", &[], "def run(): return 'fine'");
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.run("stop").error(), "KeyboardInterrupt");
        assert_eq!(host.run("leave").error(), "SystemExit: 3");
        assert_eq!(host.run("quit").error(), "SystemExit");
        assert_eq!(host.run("exit").error(), "SystemExit: gone");
        assert_eq!(host.run("fine").ok_text(), "fine");
    });
}

#[test]
fn run11_and_run18_calls_run_at_once_and_a_slow_one_holds_nobody_up() {
    let group = Group::new()
        .tool(
            "wait",
            &[],
            "from common import go\ndef run(): return go.wait(20) and 'went'",
        )
        .file(
            "tools/wait/utils/common.py",
            "import builtins, threading\ngo = builtins.ramen_test_go = threading.Event()",
        )
        .tool(
            "go",
            &[],
            "import builtins\ndef run(): builtins.ramen_test_go.set()",
        )
        .tool("quick", &["n"], "def run(n): return n");
    each_python(|python| {
        let mut host = group.start(python);
        // All threads but one wait; the order in which they finish is not that of their calls.
        let waiting = (0..7)
            .map(|_| host.begin("wait", &json!({})))
            .collect::<Vec<_>>();
        for n in 0..200 {
            assert_eq!(host.call("quick", &json!({"n": n})).json(), json!(n));
        }
        assert_eq!(host.stats().in_flight, 7);
        assert_eq!(host.run("go").text(), "null");
        for call in waiting {
            assert_eq!(host.result(call).ok_text(), "went");
        }
    });
}

#[test]
fn a_quick_tool_that_gets_stuck_once_loses_the_lead() {
    let source = "import threading\ngo = threading.Event()\n\
        def run(n):\n    \
            if n == 1: return go.wait(20)\n    \
            if n == 2: go.set()\n    \
            return n\n";
    let group = Group::new().tool("moody", &["n"], source);
    each_python(|python| {
        let mut host = group.start(python);
        for _ in 0..500 {
            host.call("moody", &json!({"n": 0}));
        }
        let stuck = host.begin("moody", &json!({"n": 1}));
        assert_eq!(host.call("moody", &json!({"n": 0})).json(), json!(0));
        assert_eq!(host.call("moody", &json!({"n": 2})).json(), json!(2));
        assert_eq!(host.result(stuck).json(), json!(true));
    });
}

#[test]
fn calls_over_the_number_of_threads_wait_and_interrupts_still_arrive() {
    let mut group = Group::new().tool(
        "spin",
        &["n"],
        "import time\ngo = []\n\
         def run(n):\n    \
             if n == 9: go.append(n)\n    \
             while not go: time.sleep(0.001)\n    \
             return n\n",
    );
    group.threads = 2;
    each_python(|python| {
        let mut host = group.start(python);
        let calls = (0..5)
            .map(|n| host.begin("spin", &json!({"n": n})))
            .collect::<Vec<_>>();
        while host.stats().in_flight < 5 {}
        host.send(&ToHost::Cancel(calls[4]));
        assert!(
            host.result(calls[4])
                .error()
                .starts_with("CancelledError: ")
        );
        host.send(&ToHost::Interrupt(calls[0]));
        assert!(is_interrupted(&host.result(calls[0])));
        let last = host.begin("spin", &json!({"n": 9}));
        host.send(&ToHost::Interrupt(calls[1]));
        assert!(is_interrupted(&host.result(calls[1])));
        host.send(&ToHost::Interrupt(calls[2]));
        assert!(is_interrupted(&host.result(calls[2])));
        for call in [calls[3], last] {
            host.result(call).json();
        }
    });
}

/// In its loop, or while it still waited for a thread.
fn is_interrupted(reply: &crate::driver::Reply) -> bool {
    [
        "Interrupted: the call was interrupted",
        "CancelledError: the call was cancelled before it ran",
    ]
    .contains(&reply.error())
}

#[test]
fn an_interrupt_ends_a_pure_python_loop_and_does_not_hit_the_next_call() {
    let group = Group::new()
        .tool("spin", &[], "def run():\n    n = 0\n    while True: n += 1")
        .tool("swallow", &[], "import time\ndef run():\n    try:\n        while True: time.sleep(0.001)\n    except Exception: return 'swallowed'")
        .tool("quick", &["n"], "def run(n):\n    return sum(range(n))");
    each_python(|python| {
        let mut host = group.start(python);
        for name in ["spin", "swallow"] {
            for _ in 0..5 {
                let call = host.begin(name, &json!({}));
                host.call("quick", &json!({"n": 5}));
                host.send(&ToHost::Interrupt(call));
                assert_eq!(
                    host.result(call).error(),
                    "Interrupted: the call was interrupted"
                );
            }
        }
        // Interrupts that race with the end of their call, or come after it.
        for n in 0..300 {
            let call = host.begin("quick", &json!({"n": 3000}));
            if n % 2 == 0 {
                host.result(call);
            }
            host.send(&ToHost::Interrupt(call));
            assert_eq!(host.call("quick", &json!({"n": 4})).json(), json!(6));
        }
    });
}

#[test]
fn run13_forks_leave_the_channel_alone_and_children_that_come_back_end() {
    let group = Group::new()
        .tool(
            "pool",
            &[],
            "import multiprocessing as m, warnings\nfrom concurrent.futures import ProcessPoolExecutor\n\
             warnings.simplefilter('ignore')\n\
             def double(n): return n * 2\n\
             def run():\n    \
                 with ProcessPoolExecutor(2, mp_context=m.get_context('fork')) as pool:\n        \
                     return list(pool.map(double, [1, 2, 3]))\n",
        )
        .tool(
            "back",
            &[],
            "import os, warnings\nwarnings.simplefilter('ignore')\n\
             def run():\n    \
                 child = os.fork()\n    \
                 if child == 0: return 'child'\n    \
                 return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]\n",
        )
        .tool(
            "raises",
            &[],
            "import os, sys, warnings\nwarnings.simplefilter('ignore')\n\
             def run():\n    \
                 child = os.fork()\n    \
                 if child == 0: sys.exit(7)\n    \
                 return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]\n",
        )
        .tool(
            "orphan",
            &[],
            "import os, time, warnings\nwarnings.simplefilter('ignore')\n\
             def run():\n    \
                 child = os.fork()\n    \
                 if child == 0:\n        time.sleep(30)\n        os._exit(0)\n    \
                 return child\n",
        )
        .tool("die", &[], "import os\ndef run(): os._exit(9)")
        .tool("fine", &[], "def run(): return 'fine'");
    each_python(|python| {
        let mut host = group.start(python);
        for _ in 0..3 {
            assert_eq!(host.run("pool").json(), json!([2, 4, 6]));
            assert_eq!(host.run("back").json(), json!([0]));
            assert_eq!(host.run("raises").json(), json!([7]));
            assert_eq!(host.run("fine").ok_text(), "fine");
        }
        // A grandchild does not keep the socket open after the host died.
        let orphan = host.run("orphan").json().as_i64().unwrap();
        host.begin("die", &json!({}));
        assert!(host.event().is_none());
        assert_eq!(host.child.wait().unwrap().code(), Some(9));
        // SAFETY: a signal to a process that this test made.
        unsafe { libc::kill(i32::try_from(orphan).unwrap(), libc::SIGKILL) };
    });
}

#[test]
fn run04_a_crash_closes_the_channel_at_once() {
    let group = Group::new()
        .tool(
            "crash",
            &[],
            "import ctypes\ndef run(): ctypes.string_at(0)",
        )
        .tool("close", &[], "import os\ndef run(): os.closerange(3, 1000)");
    each_python(|python| {
        let mut host = group.start(python);
        host.begin("crash", &json!({}));
        assert!(host.event().is_none());
        assert_eq!(host.child.wait().unwrap().signal(), Some(libc::SIGSEGV));
        let mut host = group.start(python);
        host.begin("close", &json!({}));
        assert!(host.event().is_none());
        host.child.wait().unwrap();
    });
}

#[test]
fn run01_and_run02_what_is_printed_goes_to_the_pipes_and_stdin_is_empty() {
    let source = "import os, subprocess, sys\n\
        def run():\n    \
            print('prénted')\n    \
            os.write(1, b'raw\\n')\n    \
            subprocess.run(['echo', 'child'])\n    \
            print('wrong', file=sys.stderr)\n    \
            print('\\udce9 part', end='')\n    \
            return subprocess.run(['cat'], capture_output=True).stdout.decode() + sys.stdin.read()\n";
    let group = Group::new().tool("talk", &[], source);
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.run("talk").ok_text(), "");
        host.send(&ToHost::Exit);
        assert!(host.child.wait().unwrap().success());
        let (mut out, mut err) = (String::new(), String::new());
        host.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        host.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        assert_eq!(out, "prénted\nraw\nchild\n\\udce9 part");
        assert_eq!(err, "wrong\n");
    });
}

#[test]
fn the_current_folder_is_put_back_after_a_call() {
    let group = Group::new()
        .tool(
            "move",
            &[],
            "import os\ndef run():\n    os.chdir('/')\n    return os.getcwd()",
        )
        .tool(
            "fail",
            &[],
            "import os\ndef run():\n    os.chdir('/')\n    1 / 0",
        )
        .tool("where", &[], "import os\ndef run(): return os.getcwd()");
    each_python(|python| {
        let mut host = group.start(python);
        let home = host.run("where").ok_text().to_owned();
        for _ in 0..3 {
            assert_eq!(host.run("move").ok_text(), "/");
            assert_eq!(host.run("where").ok_text(), home);
            host.run("fail").error();
            assert_eq!(host.run("where").ok_text(), home);
        }
    });
}

#[test]
fn run14_the_end_of_the_channel_ends_the_host_whatever_its_threads_do() {
    let source = "import threading, time\n\
        threading.Thread(target=time.sleep, args=(1000,)).start()\n\
        def run():\n    \
            while True: pass\n";
    let group = Group::new().tool("busy", &[], source);
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.loaded.threads, 1);
        host.begin("busy", &json!({}));
        host.socket.shutdown(std::net::Shutdown::Both).unwrap();
        host.child.wait().unwrap();
        // And an EXIT while Python is busy.
        let mut host = group.start(python);
        host.begin("busy", &json!({}));
        host.send(&ToHost::Exit);
        host.child.wait().unwrap();
    });
}

#[test]
fn run17_the_environment_holds_what_was_given_and_pkg10_what_a_user_needs() {
    let mut group = Group::new()
        .tool(
            "names",
            &[],
            "import os\ndef run(): return sorted(os.environ)",
        )
        .tool(
            "early",
            &[],
            "import os\nSEEN = os.environ['SHOP']\ndef run(): return SEEN",
        )
        .tool(
            "user",
            &[],
            "import getpass, os, pathlib, tempfile\n\
             def run():\n    \
                 home = pathlib.Path.home()\n    \
                 with tempfile.NamedTemporaryFile(dir=home): pass\n    \
                 return [getpass.getuser(), str(home), os.getuid()]\n",
        )
        .env("RAMEN_SECRET_DEMO__KEY", "v");
    group.exported.insert("SHOP".to_owned(), "open".to_owned());
    each_python(|python| {
        let mut host = group.start(python);
        let names = host.run("names").json();
        let allowed = [
            "HOME",
            "LC_CTYPE",
            "LOGNAME",
            "MKL_NUM_THREADS",
            "NUMEXPR_NUM_THREADS",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "PATH",
            "RAMEN_SECRET_DEMO__KEY",
            "SHOP",
            "USER",
        ];
        for name in names.as_array().unwrap() {
            assert!(allowed.contains(&name.as_str().unwrap()), "{name}");
        }
        assert_eq!(host.run("early").ok_text(), "open");
        assert!(host.run("user").json()[0].is_string());
    });
}

#[test]
fn pkg10_a_user_id_without_an_entry_has_a_name_and_a_writable_home() {
    // SAFETY: always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        ramen_skip::say("only root can start a process under another user id");
        return;
    }
    let source = "import getpass, os, pathlib, tempfile\n\
        def run():\n    \
            home = pathlib.Path.home()\n    \
            with tempfile.NamedTemporaryFile(dir=home): pass\n    \
            return [getpass.getuser(), os.getuid(), os.path.expanduser('~') == str(home)]\n";
    let mut group = Group::new()
        .tool("user", &[], source)
        .env("HOME", "/nonexistent");
    group.uid = Some(12345);
    open_to_all(group.folder.path());
    each_python(|python| {
        let described = python.describe();
        let prefix = described["prefix"].as_str().unwrap();
        if !prefix.starts_with("/usr") {
            // An interpreter in somebody's home folder cannot be read by others.
            ramen_skip::say(&format!("others may not read the Python in {prefix}"));
            return;
        }
        // The build may lie below a home folder that only its owner enters; what a worker image holds can be read by all.
        let open = tempfile::tempdir().unwrap();
        open_to_all(open.path());
        let reachable = Python {
            minor: python.minor,
            host: open.path().join("ramen-host"),
        };
        std::fs::copy(&python.host, &reachable.host).unwrap();
        open_to_all(&reachable.host);
        let mut host = group.start(&reachable);
        assert_eq!(host.run("user").json(), json!(["ramen", 12345, true]));
    });
}

fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn deep_recursion_is_an_error_on_every_thread() {
    let source = "def deep(n): return 0 if n == 0 else 1 + deep(n - 1)\n\
        def run(n): return deep(n)\n";
    let group = Group::new().tool("deep", &["n"], source);
    each_python(|python| {
        let mut host = group.start(python);
        let calls = (0..8)
            .map(|_| host.begin("deep", &json!({"n": 100_000})))
            .collect::<Vec<_>>();
        for call in calls {
            assert!(host.result(call).error().starts_with("RecursionError: "));
        }
        assert_eq!(host.call("deep", &json!({"n": 500})).json(), json!(500));
    });
}

//! `async def` callables, and event loops in general.

use ramen_frame::ToHost;
use serde_json::json;

use crate::driver::{Group, each_python};

#[test]
fn run15_and_run16_one_loop_serves_all_coroutines_and_plain_tools_may_run_their_own() {
    let group = Group::new()
        .tool(
            "locked",
            &["n"],
            "import asyncio\nlock = asyncio.Lock()\nqueue = asyncio.Queue()\n\
             async def run(n):\n    \
                 async with lock:\n        \
                     await asyncio.sleep(0)\n        \
                     await queue.put(n)\n        \
                     return await queue.get()\n",
        )
        .tool(
            "own",
            &[],
            "import asyncio\nasync def c(): return 'own'\ndef run(): return asyncio.run(c())",
        )
        .tool(
            "gives",
            &[],
            "async def c(): return 'given'\ndef run(): return c()",
        );
    each_python(|python| {
        let mut host = group.start(python);
        let calls = (0..50)
            .map(|n| host.begin("locked", &json!({"n": n})))
            .collect::<Vec<_>>();
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(host.result(call).json(), json!(n));
        }
        for _ in 0..3 {
            assert_eq!(host.run("own").ok_text(), "own");
            assert_eq!(host.run("gives").ok_text(), "given");
        }
    });
}

#[test]
fn more_coroutines_than_threads_wait_at_once() {
    let source = "import asyncio\nmet = 0\ngo = asyncio.Event()\n\
        async def run():\n    \
            global met\n    \
            met += 1\n    \
            if met == 40: go.set()\n    \
            await asyncio.wait_for(go.wait(), 20)\n    \
            return met\n";
    let group = Group::new().tool("meet", &[], source);
    each_python(|python| {
        let mut host = group.start(python);
        let calls = (0..40)
            .map(|_| host.begin("meet", &json!({})))
            .collect::<Vec<_>>();
        for call in calls {
            assert_eq!(host.result(call).json(), json!(40));
        }
        assert_eq!(host.stats().in_flight, 0);
    });
}

#[test]
fn res07_an_async_generator_is_a_type_error() {
    let group = Group::new().tool("many", &[], "async def run(): yield 1");
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(
            host.run("many").error(),
            "TypeError: Object of type async_generator is not JSON serializable"
        );
    });
}

#[test]
fn exceptions_and_exits_in_coroutines_are_errors_and_the_loop_goes_on() {
    let group = Group::new()
        .tool("fails", &["kind"], "import builtins\nasync def run(kind): raise getattr(builtins, kind)('x')")
        .tool("stops", &[], "import asyncio\nasync def run():\n    asyncio.get_running_loop().stop()\n    return 'stopped'")
        .tool("wrong", &[], "async def run(): return {1}");
    each_python(|python| {
        let mut host = group.start(python);
        for kind in [
            "ValueError",
            "KeyboardInterrupt",
            "SystemExit",
            "GeneratorExit",
        ] {
            for _ in 0..2 {
                let reply = host.call("fails", &json!({"kind": kind}));
                assert!(reply.error().starts_with(kind), "{}", reply.error());
            }
        }
        assert_eq!(host.run("stops").ok_text(), "stopped");
        assert_eq!(host.run("stops").ok_text(), "stopped");
        assert!(host.run("wrong").error().starts_with("TypeError: "));
    });
}

#[test]
fn a_cancel_or_an_interrupt_ends_a_waiting_coroutine_and_one_that_blocks_the_loop() {
    let group = Group::new()
        .tool("sleeps", &[], "import asyncio\nfrom ramen_runtime import progress\nasync def run():\n    progress(1)\n    await asyncio.sleep(100)")
        .tool("blocks", &[], "from ramen_runtime import progress\nasync def run():\n    progress(1)\n    while True: pass")
        .tool("shields", &[], "import asyncio\nfrom ramen_runtime import cancelled, progress\nasync def run():\n    progress(1)\n    try:\n        await asyncio.sleep(100)\n    except asyncio.CancelledError:\n        return [cancelled()]")
        .tool("fine", &[], "async def run(): return 'fine'");
    each_python(|python| {
        let mut host = group.start(python);
        let call = host.begin("sleeps", &json!({}));
        while !matches!(host.event(), Some(crate::driver::Event::Progress(id, _)) if id == call) {}
        host.send(&ToHost::Cancel(call));
        assert!(host.result(call).error().starts_with("CancelledError"));
        // Before it starts, or in its sleep.
        for _ in 0..20 {
            let call = host.begin("sleeps", &json!({}));
            host.send(&ToHost::Interrupt(call));
            let reply = host.result(call);
            let ends = [
                "Interrupted: the call was interrupted",
                "CancelledError: the call was cancelled",
            ];
            assert!(ends.contains(&reply.error()), "{}", reply.error());
        }
        let call = host.begin("shields", &json!({}));
        while !matches!(host.event(), Some(crate::driver::Event::Progress(id, _)) if id == call) {}
        host.send(&ToHost::Cancel(call));
        assert_eq!(host.result(call).json(), json!([true]));
        let call = host.begin("blocks", &json!({}));
        while !matches!(host.event(), Some(crate::driver::Event::Progress(id, _)) if id == call) {}
        host.send(&ToHost::Interrupt(call));
        let error = host.result(call);
        assert!(
            error.error().starts_with("Interrupted") || error.error().starts_with("CancelledError")
        );
        assert_eq!(host.run("fine").ok_text(), "fine");
    });
}

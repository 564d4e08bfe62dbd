"""Tools that do not let go of their process, as a client sees them: hangs in C (RUN12) and threads at the end (RUN14)."""

import asyncio
import signal
from pathlib import Path

import pytest
from mcp import MCPError

import groups
import programs
from clients import over_http
from up import Up

MODES = ["legacy", "2026-07-28"]


def stubborn_group(root):
    (root / "mcp").mkdir(parents=True)
    (root / "mcp" / "requirements.txt").write_text("")
    path = {"type": "string"}
    groups.tool(root, "power", "def power():\n    n = 9\n    return n ** n ** n\n")
    groups.tool(root, "factorial", "import math\ndef factorial():\n    return math.factorial(10 ** 8)\n")
    groups.tool(root, "echo", "def echo(text):\n    return text\n", text={"type": "string"})
    groups.tool(root, "leaves", """
        import threading
        def leaves():
            threading.Thread(target=threading.Event().wait, daemon=False).start()
            return "left"
        """)
    groups.tool(root, "held", """
        import time
        def held(path):
            open(path, "w").write("begun")
            while open(path).read() != "end":
                time.sleep(0.01)
            return "answered"
        """, path=path)
    return root


@pytest.fixture(scope="module")
def hurried(tmp_path_factory):
    """A gateway that gives each call five seconds, before a worker of two hosts."""
    folder = tmp_path_factory.mktemp("stubborn")
    group = stubborn_group(folder / "repo")
    with programs.serving(group, folder, group="stubborn", env={"RAMEN_HOSTS": "2"}) as worker:
        gateway = programs.Gateway(folder, {"stubborn": worker}, RAMEN_CALL_TIMEOUT_SECS="5")
        gateway.worker = worker
        yield gateway
        gateway.stop()


@pytest.mark.parametrize("mode", MODES)
def test_run12_a_hang_in_c_is_told_at_the_deadline_and_its_process_is_replaced(hurried, mode):
    worker = hurried.worker

    def replaced():
        return programs.metric(worker, "ramen_host_restarts_total", cause="overdue") or 0

    before = replaced()

    async def body(client):
        hangs = [asyncio.create_task(client.call_tool(name, {})) for name in ("power", "factorial")]
        while not all(hang.done() for hang in hangs):
            assert len((await client.list_tools()).tools) == 5
            assert await asyncio.to_thread(worker.serving), "health waits for no tool"
        lost = await asyncio.gather(*hangs, return_exceptions=True)
        await asyncio.to_thread(programs.until, lambda: replaced() == before + 2, "both processes are ended")
        # Whoever comes now would wait for a new one, with its call's time running.
        ready = lambda: programs.metric(worker, "ramen_hosts_ready") == 2
        await asyncio.to_thread(programs.until, ready, "new ones are there")
        return lost, await client.call_tool("echo", {"text": "again"})

    lost, echoed = over_http(hurried.at("stubborn"), hurried.key, mode, body)
    for error in lost:
        assert isinstance(error, MCPError), error
        assert (error.code, error.data) == (-32603, {"grpc": "DEADLINE_EXCEEDED"})
    assert echoed.content[0].text == "again"


def children(parent):
    """The processes that a process has begun."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _state, of, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(of) == parent:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("mode", MODES)
def test_run14_on_sigterm_a_call_is_answered_first_and_threads_of_tools_hold_up_nothing(folder, mode):
    up = Up(folder, stubborn_group(folder / "stubborn-group"))
    log = up.state / "groups" / "default.stubborn" / "worker.log"
    mark = folder / "mark"

    async def comes(condition):
        while not condition():
            await asyncio.sleep(0.01)

    async def body(client):
        for _ in range(4):
            assert (await client.call_tool("leaves", {})).content[0].text == "left"
        call = asyncio.create_task(client.call_tool("held", {"path": str(mark)}))
        await comes(lambda: mark.exists() and mark.read_text() == "begun")
        hosts = [host for worker in children(up.process.pid) for host in children(worker)]
        assert hosts, "there is something to leave behind"
        up.process.send_signal(signal.SIGTERM)
        await comes(lambda: "stopping" in log.read_text())
        mark.write_text("end")
        return await call, hosts

    try:
        answer, hosts = over_http(up.url, up.key, mode, body)
        # Asked a second time it would end at once.
        up.process.wait(programs.PATIENCE)
    finally:
        up.stop()
    assert answer.content[0].text == "answered"
    assert not [host for host in hosts if Path(f"/proc/{host}").exists()], "left behind"

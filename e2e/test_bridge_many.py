"""`ramen bridge --config`, `ramen bridge URL` and `ramen call --server` between the official client and official servers."""

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
from mcp import Client, StdioServerParameters

import programs
from clients import MODES, listed

SERVER = programs.ROOT / "client" / "tests" / "python_servers" / "server.py"
RAMEN = str(programs.BIN / "ramen")


@contextmanager
def over_http(mode):
    """The official server over Streamable HTTP; gives its address."""
    process = subprocess.Popen([sys.executable, SERVER, mode], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(programs.PATIENCE)


@pytest.fixture
def home(tmp_path):
    """A home folder whose configuration has a program, an address, and one that is broken."""
    with over_http("sessions") as url:
        folder = tmp_path / ".config" / "ramen"
        folder.mkdir(parents=True)
        servers = {
            "local": {"command": sys.executable, "args": [str(SERVER), "stdio"]},
            "remote": {"url": url},
            "broken": {"command": "/no/such/program"},
        }
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        yield tmp_path


def environment(home):
    return programs.environment(HOME=str(home), XDG_CONFIG_HOME="", XDG_CACHE_HOME="", XDG_STATE_HOME="")


def with_bridge(home, args, mode, body):
    async def run():
        parameters = StdioServerParameters(command=RAMEN, args=["bridge", *args], env=environment(home))
        async with Client(parameters, mode=mode) as client:
            return await body(client)

    return asyncio.run(asyncio.wait_for(run(), programs.PATIENCE))


@pytest.mark.parametrize("mode", MODES)
def test_many_servers_are_one_and_a_broken_one_costs_nothing_else(home, mode):
    async def body(client):
        tools = await listed(client, {"local_add", "remote_add", "local_fail"})
        assert not any(name.startswith("broken") for name in tools)
        for server in ("local", "remote"):
            result = await client.call_tool(f"{server}_add", {"a": 40, "b": 2})
            assert [block.text for block in result.content] == ["42"]
            assert result.structured_content == {"result": 42}
            assert (await client.call_tool(f"{server}_fail", {"why": "no such city"})).is_error
            prompt = await client.get_prompt(f"{server}_review", {"code": "x = 1"})
            assert prompt.messages[0].content.text == "Please review: x = 1"
        read = await client.read_resource("demo://text")
        assert read.contents[0].text == "the text"
        seen = []

        async def progress(done, total, message):
            seen.append(message)

        await client.call_tool("local_steps", {}, progress_callback=progress)
        assert seen == ["step 0", "step 1", "step 2"]

    with_bridge(home, ["--config", str(home / ".config" / "ramen" / "mcp.json")], mode, body)


@pytest.mark.parametrize("mode", MODES)
def test_a_remote_server_reaches_a_client_that_only_knows_stdio(home, mode):
    async def body(client):
        assert "add" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("add", {"a": 1, "b": 1})
        assert result.content[0].text == "2"

    with over_http("json") as url:
        with_bridge(home, [url], mode, body)


def ramen(home, *args):
    done = subprocess.run([RAMEN, *args], env=environment(home), cwd=home, capture_output=True, text=True, timeout=programs.PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_reach_servers_and_inspect_remembers_them(home):
    assert ramen(home, "call", "add", "a=40", "b=2", "--server", "remote") == "42\n"
    assert ramen(home, "read", "demo://text", "--server", "local") == "the text\n"
    assert ramen(home, "prompt", "review", "code=x", "--server", "local") == "Please review: x\n"
    known = {server["name"]: server for server in json.loads(ramen(home, "inspect", "-o", "json"))}
    assert known["remote"]["server"] == known["local"]["server"] == "official 9.1"
    assert known["broken"]["state"] == "never seen"
    assert "add" in {tool["name"] for tool in known["remote"]["tools"]}

"""Our client, as `ramen ls|call|read|prompt --server` and as `ramen bridge --config`, against servers made with every official SDK
and against servers that people install from npm and the Python index."""

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest
from mcp import Client, StdioServerParameters

import foreign
import programs
from clients import listed

RAMEN = str(programs.BIN / "ramen")
# Each takes `stdio` or `http` as its last argument and prints its address in the latter case.
MADE = {
    "python-2": lambda how: [sys.executable, str(programs.ROOT / "client/tests/python_servers/server.py"),
                             how.replace("http", "sessions")],
    "python-1": lambda how: foreign.python("sdk1", str(foreign.SOURCES / "python" / "server1.py"), how),
    "typescript-2": partial(foreign.node, "server2.mjs"),
    "typescript-1": partial(foreign.node, "server1.mjs"),
    "go": lambda how: [*foreign.go("server"), how.replace("http", "sessions")],
    "go-stateless": lambda how: [*foreign.go("server"), how.replace("http", "stateless")],
    "rust": lambda how: foreign.rust("server", how),
}
# The Go SDK has the newest revision over HTTP only without sessions.
LEGACY_ONLY = {("python-1", "stdio"), ("python-1", "http"), ("typescript-1", "stdio"), ("typescript-1", "http"), ("go", "http")}


@contextmanager
def listening(command):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=programs.environment())
    try:
        url = process.stdout.readline().strip()
        assert url, process.stderr.read()[-4000:]
        yield url
    finally:
        process.kill()
        process.wait(programs.PATIENCE)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def home_with(folder, servers):
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    yield folder


def ramen(home, *args, exit=0):
    done = subprocess.run([RAMEN, *args, "--config", str(home / "mcp.json")], env=of_home(home), cwd=home, capture_output=True,
                          text=True, timeout=programs.PATIENCE * 2, stdin=subprocess.DEVNULL)
    assert done.returncode == exit, f"{args}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout if exit == 0 else done.stderr


def of_home(home):
    return programs.environment(HOME=str(home), XDG_CONFIG_HOME="", XDG_CACHE_HOME="", XDG_STATE_HOME="",
                                UV_CACHE_DIR=str(home / "uv"))


@pytest.fixture(scope="module", params=[
    pytest.param((server, how, era), id=f"{server}-{how}-{era}")
    for server in MADE for how in ("stdio", "http") for era in ("legacy", "auto")
    if not (server == "go-stateless" and how == "stdio") and not (era == "legacy" and (server, how) in LEGACY_ONLY)])
def made(request, tmp_path_factory):
    """A folder whose `mcp.json` has the one server `s`, and the newest revision that it can be spoken to with."""
    server, how, era = request.param
    command = MADE[server](how)
    entry = {"protocolEra": era}
    newest = "2025-11-25" if era == "legacy" or (server, how) in LEGACY_ONLY else "2026-07-28"
    folder = tmp_path_factory.mktemp("home")
    if how == "stdio":
        entry |= {"command": command[0], "args": command[1:]}
        with home_with(folder, {"s": entry}) as home:
            yield home, newest
    else:
        with listening(command) as url, home_with(folder, {"s": {**entry, "url": url}}) as home:
            yield home, newest


def test_it_is_listed_called_and_remembered(made):
    home, newest = made
    assert {"add", "fail", "steps"} <= {tool["name"] for tool in json.loads(ramen(home, "ls", "tools", "--server", "s", "-o", "json"))["tools"]}
    assert ramen(home, "call", "add", "a=40", "b=2", "--server", "s").strip() in ("42", '{"result":42}')
    assert "no such city" in ramen(home, "call", "fail", "why=no such city", "--server", "s", exit=5)
    (known,) = json.loads(ramen(home, "inspect", "-o", "json"))
    assert known["protocol"] == newest


def test_it_is_one_of_many_behind_the_bridge(made):
    home, _ = made

    async def run():
        parameters = StdioServerParameters(command=RAMEN, args=["bridge", "--config", str(home / "mcp.json")], env=of_home(home))
        seen = []

        async def on_progress(progress, total, message):
            seen.append((progress, total, message))

        async with Client(parameters) as client:
            await listed(client, {"s_add", "s_fail", "s_steps"})
            result = await client.call_tool("s_add", {"a": 40, "b": 2})
            assert result.structured_content == {"result": 42}
            assert (await client.call_tool("s_fail", {"why": "no such city"})).is_error
            assert (await client.call_tool("s_steps", {}, progress_callback=on_progress)).content[0].text == "done"
            # What has not been handed on when the answer comes is lost within the client.
            assert seen == [(step, 3, f"step {step}") for step in range(len(seen))]
            assert (await client.read_resource("demo://text")).contents[0].text == "the text"
            got = await client.get_prompt("s_review", {"code": "x"})
            assert got.messages[0].content.text == "Please review: x"

    asyncio.run(asyncio.wait_for(run(), programs.PATIENCE))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """One file with the servers that a person may have, as their pages say, but for the path of each program."""
    home = tmp_path_factory.mktemp("home")
    (home / "files").mkdir()
    (home / "files" / "note.txt").write_text("Water the plants.\n")
    repo = home / "repo"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(repo)]
    subprocess.run(["git", "init", "--quiet", str(repo)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "The first one"], check=True)
    everything = foreign.npm_program("@modelcontextprotocol/server-everything", "dist/index.js", "stdio")
    files = foreign.npm_program("@modelcontextprotocol/server-filesystem", "dist/index.js", str(home / "files"))
    time, history = foreign.python("sdk2", "-m", "mcp_server_time"), foreign.python("sdk2", "-m", "mcp_server_git")
    servers = {"everything": everything, "filesystem": files, "time": time, "git": [*history, "--repository", str(repo)]}
    with home_with(home, {name: {"command": c[0], "args": c[1:]} for name, c in servers.items()}) as home:
        yield home


def test_published_servers_do_their_work(published):
    everything = ["--server", "everything"]
    assert "demo://resource/static/document/features.md" in ramen(published, "ls", "resources", *everything)
    assert ramen(published, "read", "demo://resource/static/document/features.md", *everything).strip()
    assert ramen(published, "prompt", "simple-prompt", *everything).strip()
    assert "hello" in ramen(published, "call", "echo", "message=hello", "--server", "everything")
    path = published / "files" / "note.txt"
    assert "Water the plants." in ramen(published, "call", "read_text_file", f"path={path}", "--server", "filesystem")
    assert "Europe/Berlin" in ramen(published, "call", "get_current_time", "timezone=Europe/Berlin", "--server", "time")
    repo = published / "repo"
    assert "The first one" in ramen(published, "call", "git_log", f"repo_path={repo}", "--server", "git")


def test_what_a_published_server_refuses_is_told(published):
    told = ramen(published, "call", "get_current_time", "timezone=Europe/Nowhere", "--server", "time", exit=5)
    assert "Nowhere" in told
    told = ramen(published, "call", "read_text_file", "path=/etc/passwd", "--server", "filesystem", exit=5)
    assert "root:" not in told


def test_published_servers_are_one_server_behind_the_bridge(published):
    async def run():
        parameters = StdioServerParameters(command=RAMEN, args=["bridge", "--config", str(published / "mcp.json")],
                                           env=of_home(published))
        async with Client(parameters) as client:
            await listed(client, {"everything_echo", "filesystem_list_directory", "time_get_current_time", "git_git_log"})
            found = await client.call_tool("filesystem_list_directory", {"path": str(published / "files")})
            assert "note.txt" in found.content[0].text
            assert (await client.list_resources()).resources
            assert any(prompt.name.startswith("everything_") for prompt in (await client.list_prompts()).prompts)

    asyncio.run(asyncio.wait_for(run(), programs.PATIENCE))

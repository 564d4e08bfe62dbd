"""Servers of the official Python SDK and of npm beside a group's own tools, through `ramen up`, for the official client."""

import json
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest
import yaml

import foreign
import programs
from clients import MODES, over_http
from up import UpOfFile

SERVER = programs.ROOT / "client" / "tests" / "python_servers" / "server.py"
EVERYTHING = ("@modelcontextprotocol/server-everything", "dist/index.js")
OWN = "demo_calculator_tool"
SECRET = "value-of-the-secret"


class Server:
    """The official server over Streamable HTTP."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, SERVER, "sessions"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        self.url = self.process.stdout.readline().strip()

    def stop(self):
        self.process.kill()
        self.process.wait(programs.PATIENCE)


def repository(folder):
    """The demo group as a bare repository."""
    work, bare = folder / "work", folder / "demo.git"
    shutil.copytree(programs.ROOT / "examples" / "demo-group", work)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", work]
    for args in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *args], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", work, bare], check=True)
    return bare


def groups_of(bare, url):
    token = {"name": "token", "key": "value", "prefix": "Bearer "}
    upstreams = [
        {"name": "web", "url": url, "headers": [{"name": "Authorization", "secretRef": token}]},
        {"name": "program", "command": sys.executable, "args": [str(SERVER), "stdio"]},
        {"name": "nowhere", "url": "http://127.0.0.1:1/mcp"},
        {"name": "metadata", "url": "http://169.254.169.254/latest/meta-data"},
    ]
    if foreign.installed("npm.sh")[0]:
        command, *args = foreign.npm_program(*EVERYTHING, "stdio")
        upstreams.append({"name": "npm", "command": command, "args": args, "allowedTools": ["echo", "get-s*"]})
    group = {"apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "metadata": {"name": "demo"},
             "spec": {"source": {"url": f"file://{bare}"}, "network": {"allowedCIDRs": ["127.0.0.0/8"]}, "upstreams": upstreams}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"value": SECRET}}
    return yaml.safe_dump_all([group, secret])


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def up(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("upstreams")
    up = UpOfFile(folder, "demo", groups_of(repository(folder), server.url))
    programs.until(lambda: {"web", "program"} <= {name for name, one in states(up).items() if one["state"] == "up"},
                   "the servers are connected")
    yield up
    up.stop()


def states(up):
    return {one["name"]: one for one in up.operate("groups/get", group="demo").get("upstreams", [])}


def ask(up, mode, body):
    return over_http(up.url, up.key, mode, body)


def call(up, tool, arguments, mode="auto", **options):
    async def body(client):
        return await client.call_tool(tool, arguments, **options)

    return ask(up, mode, body)


@pytest.mark.parametrize("mode", MODES)
def test_tools_of_other_servers_are_beside_the_groups_own(up, mode):
    async def body(client):
        return [tool.name for tool in (await client.list_tools()).tools]

    names = ask(up, mode, body)
    assert {OWN, "web_add", "program_add", "web_fail"} <= set(names)
    operators = [tool["name"] for tool in up.operate("tools/list", group="demo")["tools"]]
    assert {OWN, "web_add", "program_add", "web_fail"} <= set(operators)
    assert call(up, OWN, {"var1": 6, "var2": 7, "func": "multiply"}, mode).content[0].text == "42"
    assert call(up, "web_add", {"a": 40, "b": 2}, mode).content[0].text == "42"
    assert call(up, "program_add", {"a": 1, "b": 2}, mode).content[0].text == "3"
    failed = call(up, "web_fail", {"why": "no such city"}, mode)
    assert failed.is_error and "no such city" in failed.content[0].text


def test_a_published_server_of_npm_offers_what_is_allowed(up):
    foreign.folder_of("npm.sh")
    programs.until(lambda: states(up)["npm"]["state"] == "up", "it is connected")

    async def body(client):
        return {tool.name for tool in (await client.list_tools()).tools if tool.name.startswith("npm_")}

    names = ask(up, "auto", body)
    assert "npm_echo" in names and all(name == "npm_echo" or name.startswith("npm_get-s") for name in names), names
    assert "hello" in call(up, "npm_echo", {"message": "hello"}).content[0].text


@pytest.mark.parametrize("mode", MODES)
def test_resources_and_prompts_are_merged_and_found(up, mode):
    async def body(client):
        resources = [str(one.uri) for one in (await client.list_resources()).resources]
        prompts = [one.name for one in (await client.list_prompts()).prompts]
        read = (await client.read_resource("demo://text")).contents[0].text
        prompt = (await client.get_prompt("web_review", {"code": "x = 1"})).messages[0].content.text
        return resources, prompts, read, prompt

    resources, prompts, read, prompt = ask(up, mode, body)
    assert {"demo://text", "demo://bytes"} <= set(resources)
    assert {"web_review", "program_review"} <= set(prompts)
    assert (read, prompt) == ("the text", "Please review: x = 1")


@pytest.mark.parametrize("mode", MODES)
def test_progress_passes_through(up, mode):
    steps = []

    async def seen(progress, total, message):
        steps.append(message)

    assert call(up, "program_steps", {}, mode, progress_callback=seen).content[0].text == "done"
    assert steps == ["step 0", "step 1", "step 2"]


def test_who_goes_away_cancels_the_call_there(up):
    params = {"name": "program_forever", "arguments": {"name": "gone"}, "_meta": {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Authorization": f"Bearer {up.key}", "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    request = urllib.request.Request(up.url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=programs.PATIENCE) as answer:
        while b"begun" not in answer.readline():
            pass
    assert call(up, "program_was_stopped", {"name": "gone"}).content[0].text == "yes"


def test_what_is_down_is_told_and_no_secret_is(up):
    told = states(up)
    assert told["nowhere"]["state"] == "down" and "refused" in told["nowhere"]["why"]
    assert told["metadata"]["state"] == "down" and "is not allowed" in told["metadata"]["why"]
    assert SECRET not in json.dumps(told)
    assert SECRET not in (up.file.parent / "log").read_text()


def test_one_that_dies_keeps_its_list_with_a_mark_and_comes_back(up, server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(programs.PATIENCE)
    # A call finds out, or the next look of the gateway.
    with pytest.raises(BaseException, match="web|unhandled"):
        call(up, "web_add", {"a": 1, "b": 1})
    programs.until(lambda: states(up)["web"]["state"] == "down", "it is down")

    async def body(client):
        return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = ask(up, "auto", body)
    assert tools["web_add"].description.startswith("(Not available now: the server `web` is down.)")
    assert tools["web_add"].meta["dev.ramen/upstream"] == {"server": "web", "state": "down"}
    assert call(up, OWN, {"var1": 6, "var2": 7, "func": "multiply"}).content[0].text == "42"
    assert call(up, "program_add", {"a": 1, "b": 2}).content[0].text == "3"
    # Another one takes its place: the file is read again.
    again = Server()
    try:
        up.file.write_text(up.file.read_text().replace(server.url, again.url))
        programs.until(lambda: states(up)["web"]["state"] == "up", "the other one is connected")
        assert call(up, "web_add", {"a": 40, "b": 2}).content[0].text == "42"
    finally:
        again.stop()


class Away:
    """A worker that is not there."""

    key, address = "rmk_" + "0" * 64, "127.0.0.1:1"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A group of which no worker runs, with an upstream."""
    server = Server()
    gateway = programs.Gateway(tmp_path_factory.mktemp("alone"), {"demo": Away()}, upstreams=[{"name": "web", "url": server.url}],
                               RAMEN_UPSTREAM_ALLOWED_CIDRS="127.0.0.0/8", RAMEN_METRICS_LISTEN="127.0.0.1:0")
    programs.until(lambda: programs.metric(gateway, "ramen_gateway_upstreams", group="default/demo", state="up") == 1,
                   "the upstream is connected")
    yield gateway
    gateway.stop()
    server.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_client_begins_lists_and_calls_while_the_workers_of_the_group_are_down(alone, mode):
    async def body(client):
        names = [tool.name for tool in (await client.list_tools()).tools]
        return names, await client.call_tool("web_add", {"a": 40, "b": 2})

    names, answer = over_http(alone.at("demo"), alone.key, mode, body)
    assert "web_add" in names and all(name.startswith("web_") for name in names), names
    assert answer.content[0].text == "42"

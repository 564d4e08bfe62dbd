"""`ramen up` serves its group and the platform's operations over HTTP, as the gateway of a cluster does."""

import json
import subprocess

import pytest

import programs
from clients import MODES, over_http
from up import Up

TOOL = {"type": "tool", "name": "added", "description": "Added later.", "callable": "run", "input": {}}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Operated(Up):
    def operate(self, tool, arguments, mode="legacy"):
        async def body(client):
            return await client.call_tool(tool, arguments)

        return over_http(f"{self.api}/mcp", self.operator, mode, body)


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    up = Operated(tmp_path_factory.mktemp("up"), programs.ROOT / "examples" / "demo-group")
    yield up
    up.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_is_called_over_http(up, mode):
    async def body(client):
        return await client.call_tool("demo_calculator_tool", {"var1": 6, "var2": 7, "func": "multiply"})

    assert over_http(up.url, up.key, mode, body).content[0].text == "42"


@pytest.mark.parametrize("mode", MODES)
def test_the_operations_are_tools_of_an_mcp_server(up, mode):
    async def body(client):
        return [tool.name for tool in (await client.list_tools()).tools]

    names = over_http(f"{up.api}/mcp", up.operator, mode, body)
    assert {"groups_list", "groups_errors", "groups_deploy", "tools_list", "calls_recent", "keys_rotate"} <= set(names)
    listed = up.operate("groups_list", {}, mode).structured_content["groups"]
    assert [(group["group"], group["ready"]) for group in listed] == [("default/demo", True)]
    tools = up.operate("tools_list", {"group": "demo"}, mode).structured_content["tools"]
    assert [tool["name"] for tool in tools][-1] == "demo_calculator_tool"


def test_a_refusal_is_a_tool_error_with_the_envelope(up):
    result = up.operate("groups_get", {"group": "nowhere"})
    assert result.is_error
    assert json.loads(result.content[0].text)["error"]["code"] == "not_found"
    result = up.operate("groups_deploy", {"group": "demo", "ref": "main"})
    assert json.loads(result.content[0].text)["error"]["code"] == "conflict", "a folder has no refs"


def curl(*args):
    done = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "30", *args], capture_output=True, text=True,
                          check=True)
    return done.stdout


def test_the_operations_are_a_json_api_that_describes_itself(up):
    bearer = ["--header", f"Authorization: Bearer {up.operator}"]
    document = json.loads(curl(*bearer, f"{up.api}/openapi.json"))
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]["/api/v1/groups/errors"]) == {"get", "post"}
    assert set(document["paths"]["/api/v1/groups/deploy"]) == {"post"}
    errors = json.loads(curl(*bearer, f"{up.api}/groups/errors?group=demo"))
    assert errors == {"errors": []}
    group = json.loads(curl(*bearer, "--json", '{"group":"default/demo"}', f"{up.api}/groups/get"))
    assert (group["name"], group["ready"]) == ("demo", True)
    status = curl(*bearer, "--output", "/dev/null", "--write-out", "%{http_code}", f"{up.api}/groups/deploy")
    assert status == "405"
    assert json.loads(curl(f"{up.api}/groups/list"))["error"]["code"] == "unauthenticated"


def test_a_new_revision_is_told_on_an_open_stream(up):
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
               "params": {"notifications": {"toolsListChanged": True}, "_meta": META}}
    stream = subprocess.Popen(
        ["curl", "--silent", "--no-buffer", up.url, "--header", f"Authorization: Bearer {up.key}",
         "--header", "Content-Type: application/json", "--header", "Accept: application/json, text/event-stream",
         "--header", "MCP-Protocol-Version: 2026-07-28", "--header", "Mcp-Method: subscriptions/listen",
         "--data", json.dumps(message)],
        stdout=subprocess.PIPE, text=True)
    try:
        seen = (json.loads(line.removeprefix("data: ")) for line in stream.stdout if line.startswith("data: "))
        assert next(seen)["method"] == "notifications/subscriptions/acknowledged"
        package = up.repo / "mcp" / "tools" / "added"
        package.mkdir()
        (package / "added.py").write_text("def run():\n    return 'added'\n")
        (package / "added.json").write_text(json.dumps(TOOL))
        assert next(seen)["method"] == "notifications/tools/list_changed"
    finally:
        stream.kill()
        stream.wait()
        stream.stdout.close()

    async def body(client):
        return await client.call_tool("added", {})

    assert over_http(up.url, up.key, "legacy", body).content[0].text == "added"


def test_a_rotated_key_opens_nothing_any_more(up):
    old = up.key
    result = up.operate("keys_rotate", {"group": "demo"})
    assert not result.is_error
    assert up.key != old and up.key not in result.content[0].text

    def status(key):
        return curl("--output", "/dev/null", "--write-out", "%{http_code}", up.url,
                    "--header", f"Authorization: Bearer {key}", "--json", '{"jsonrpc":"2.0","id":1,"method":"tools/list"}')

    programs.until(lambda: status(up.key) == "200" and status(old) == "401", "the new key opens and the old one does not")
    events = up.operate("groups_events", {"group": "demo"}).structured_content["events"]
    assert any(event.get("change") == "rotate keys" and event["caller"].startswith("key:") for event in events)

"""What access rules keep from a caller answers what a name that nobody has answers, byte for byte."""

import http.client
import json
import urllib.parse

import pytest

import programs

# Names of one length, so that lengths are the same too: one that is there and kept from the caller, one that nobody
# has, and one that nobody has and the caller might use.
NAMES = {
    "tool": ("demo_calculator_tool", "demo_calculator_toom", "others_calculator_to"),
    "prompt": ("demo_explain_prompt", "demo_explain_prompu", "others_explain_prom"),
    "resource": ("demo://readme", "demo://readmf", "others://read"),
}
RULES = {"rules": [{"keys": ["*"], "tools": ["others_*"], "prompts": ["others_*"], "resources": ["others://*"]}]}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}

# Kind, method, and the parameters around a name, right and wrong.
REQUESTS = [
    ("tool", "tools/call", lambda name: {"name": name, "arguments": {"var1": 6, "var2": 7, "func": "multiply"}}),
    ("tool", "tools/call", lambda name: {"name": name}),
    ("tool", "tools/call", lambda name: {"name": name, "arguments": {"wrong": 1}}),
    ("tool", "tools/call", lambda name: {"name": name, "arguments": "none"}),
    ("tool", "tools/call", lambda name: {"name": name, "arguments": {}, "_meta": {"progressToken": 7}}),
    ("prompt", "prompts/get", lambda name: {"name": name, "arguments": {"expression": "1", "reader": "a child"}}),
    ("prompt", "prompts/get", lambda name: {"name": name}),
    ("prompt", "prompts/get", lambda name: {"name": name, "arguments": []}),
    ("prompt", "completion/complete", lambda name: {
        "ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "reader", "value": ""}}),
    ("prompt", "completion/complete", lambda name: {"ref": {"type": "ref/prompt", "name": name}, "argument": {}}),
    ("resource", "resources/read", lambda name: {"uri": name}),
    ("resource", "resources/read", lambda name: {"uri": name, "_meta": {"progressToken": "a"}}),
    ("resource", "completion/complete", lambda name: {
        "ref": {"type": "ref/resource", "uri": name}, "argument": {"name": "a", "value": ""}}),
]
ACCEPTS = ["application/json, text/event-stream", "application/json", "text/event-stream"]


@pytest.fixture(scope="module")
def guarded(demo, tmp_path_factory):
    gateway = programs.Gateway(tmp_path_factory.mktemp("hidden"), {"demo": demo}, access=RULES)
    yield gateway
    gateway.stop()


def ask(gateway, method, params, modern, accept):
    """Status, headers but the time, and body."""
    headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json", "accept": accept}
    if modern:
        params = {**params, "_meta": {**META, **params.get("_meta", {})}}
        headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        copied = params.get("name", params.get("uri"))
        headers |= {"mcp-name": copied} if copied else {}
    else:
        headers |= {"mcp-protocol-version": "2025-11-25"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    place = urllib.parse.urlsplit(gateway.at("demo"))
    connection = http.client.HTTPConnection(place.netloc, timeout=programs.PATIENCE)
    try:
        connection.request("POST", place.path, body, headers)
        answer = connection.getresponse()
        told = sorted((name.lower(), value) for name, value in answer.getheaders() if name.lower() != "date")
        return answer.status, told, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
@pytest.mark.parametrize("accept", ACCEPTS, ids=["both", "json", "events"])
def test_what_is_hidden_and_what_nobody_has_answer_the_same(guarded, gateway, modern, accept):
    for kind, method, around in REQUESTS:
        hidden, *unknown = NAMES[kind]
        assert {len(name) for name in unknown} == {len(hidden)}

        def anonymous(name):
            status, headers, body = ask(guarded, method, around(name), modern, accept)
            return status, headers, body.replace(name.encode(), b"NAME")

        wanted = anonymous(hidden)
        for name in unknown:
            assert anonymous(name) == wanted, (method, around(name))


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_what_is_hidden_is_there_for_others(guarded, gateway, modern):
    first = {kind: (method, around) for kind, method, around in reversed(REQUESTS)}
    for kind, (method, around) in first.items():
        params = around(NAMES[kind][0])
        assert b'"result":' in ask(gateway, method, params, modern, ACCEPTS[0])[2], method
        assert b'"error":' in ask(guarded, method, params, modern, ACCEPTS[0])[2], method


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_no_list_and_no_error_names_what_is_hidden(guarded, modern):
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        status, _, body = ask(guarded, method, {}, modern, ACCEPTS[0])
        assert status == 200, body
        assert not any(hidden.encode() in body for hidden, *_ in NAMES.values()), body

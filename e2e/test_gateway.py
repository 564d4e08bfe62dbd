"""The official Python client over Streamable HTTP, in every way it can connect, through our gateway."""

import asyncio
import json
import subprocess

import pytest
from mcp import MCPError

from clients import MODES, modern, over_http

CALL = {"var1": 6, "var2": 7, "func": "multiply"}

modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def demo_client(gateway):
    def run(mode, body, key=None, **options):
        return over_http(gateway.at("demo"), key or gateway.key, mode, body, **options)

    return run


@pytest.fixture
def probe_client(gateway):
    def run(mode, body, **options):
        return over_http(gateway.at("probe"), gateway.key, mode, body, **options)

    return run


@modes
def test_tools_are_listed_and_called_and_pass_the_clients_own_output_check(demo_client, mode):
    async def body(client):
        listed = await client.list_tools()
        return listed.tools, await client.call_tool("demo_calculator_tool", CALL), modern(client)

    tools, result, is_modern = demo_client(mode, body)
    assert [tool.name for tool in tools] == ["demo_calculator_tool"]
    assert [block.text for block in result.content] == ["42"]
    assert result.structured_content == (42 if is_modern else None)


@modes
def test_an_exception_of_the_code_is_an_error_result(demo_client, mode):
    async def body(client):
        return await client.call_tool("demo_calculator_tool", {"var1": 1, "var2": 0, "func": "divide"})

    result = demo_client(mode, body)
    assert result.is_error
    assert result.content[0].text == "ZeroDivisionError: division by zero"


@modes
def test_an_unknown_tool_is_a_protocol_error(demo_client, mode):
    async def body(client):
        with pytest.raises(MCPError) as caught:
            await client.call_tool("no_such_tool", {})
        return caught.value.code, modern(client)

    code, is_modern = demo_client(mode, body)
    assert code == (-32602 if is_modern else -32601)


@modes
def test_resources_and_prompts_come_through(demo_client, mode):
    async def body(client):
        read = await client.read_resource("demo://readme")
        prompt = await client.get_prompt("demo_explain_prompt", {"expression": "6 * 7", "reader": "a child"})
        return read.contents[0].text, prompt.messages[0].content.text

    readme, prompt = demo_client(mode, body)
    assert readme.startswith("# Demo group")
    assert "Explain `6 * 7` to a child." in prompt


@modes
def test_progress_reaches_the_client(probe_client, mode):
    seen = []

    async def on_progress(progress, total, message):
        seen.append((progress, total, message))

    async def body(client):
        return await client.call_tool("steps", {"count": 3}, progress_callback=on_progress)

    assert probe_client(mode, body).content[0].text == "done"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@modes
def test_a_slow_call_does_not_hold_back_a_quick_one(probe_client, folder, mode):
    end = folder / "end"

    async def body(client):
        slow = asyncio.create_task(client.call_tool("waits", {"path": str(end)}))
        await asyncio.sleep(0)
        quick = await client.call_tool("echo", {"text": "quick"})
        first = not slow.done()
        end.touch()
        return first, quick.content[0].text, (await slow).content[0].text

    assert probe_client(mode, body) == (True, "quick", "rested")


def test_a_client_that_gives_up_cancels_the_code(probe_client, folder):
    mark = folder / "mark"

    async def body(client):
        call = asyncio.create_task(client.call_tool("patient", {"path": str(mark)}))
        while not mark.exists() or not mark.read_text():
            await asyncio.sleep(0.01)
        call.cancel()
        while mark.read_text() != "cancelled":
            await asyncio.sleep(0.01)

    probe_client("2026-07-28", body)


def test_a_wrong_key_connects_nobody(gateway):
    async def body(client):
        return await client.list_tools()

    with pytest.raises((MCPError, ExceptionGroup)):
        over_http(gateway.at("demo"), "rmk_wrong", "legacy", body)


def curl(url, *args):
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", "30", *args, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    status, *headers = head.split("\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in headers), body


def test_plain_curl_calls_a_tool(gateway):
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "demo_calculator_tool", "arguments": CALL}}
    status, headers, body = curl(
        gateway.at("demo"), "--header", f"Authorization: Bearer {gateway.key}", "--header", "Content-Type: application/json",
        "--data", json.dumps(message))
    assert status == 200
    assert headers["cache-control"] == "no-store"
    assert json.loads(body)["result"]["content"][0]["text"] == "42"


def test_a_get_is_405_and_no_key_is_401(gateway):
    status, headers, _ = curl(gateway.at("demo"), "--header", f"Authorization: Bearer {gateway.key}")
    assert (status, headers["allow"]) == (405, "post")
    status, headers, _ = curl(gateway.at("demo"), "--data", "{}")
    assert (status, headers["cache-control"]) == (401, "no-store")

"""The official Python client, through the published bridge and through ours, in every way it can connect."""

import json

import pytest
from mcp import MCPError

from clients import BRIDGES, MODES, modern, with_client

pytestmark = [pytest.mark.parametrize("bridge", BRIDGES), pytest.mark.parametrize("mode", MODES)]
CALL = {"var1": 6, "var2": 7, "func": "multiply"}


def test_tools_are_listed_with_closed_schemas(demo, bridge, mode):
    async def body(client):
        return await client.list_tools()

    (tool,) = with_client(bridge, demo, mode, body).tools
    assert tool.name == "demo_calculator_tool"
    assert tool.input_schema["additionalProperties"] is False
    assert sorted(tool.input_schema["required"]) == ["func", "var1", "var2"]
    assert tool.input_schema["properties"]["func"]["enum"] == ["add", "subtract", "multiply", "divide"]


def test_a_call_is_answered_and_passes_the_clients_own_output_check(demo, bridge, mode):
    async def body(client):
        await client.list_tools()  # from now on the client checks results against outputSchema
        return await client.call_tool("demo_calculator_tool", CALL), modern(client)

    result, is_modern = with_client(bridge, demo, mode, body)
    assert not result.is_error
    assert [block.text for block in result.content] == ["42"]
    assert result.structured_content == (42 if is_modern else None)


def test_an_exception_of_the_code_is_an_error_result(demo, bridge, mode):
    async def body(client):
        return await client.call_tool("demo_calculator_tool", {"var1": 1, "var2": 0, "func": "divide"})

    result = with_client(bridge, demo, mode, body)
    assert result.is_error
    assert result.content[0].text == "ZeroDivisionError: division by zero"


def test_an_unknown_tool_is_a_protocol_error(demo, bridge, mode):
    async def body(client):
        with pytest.raises(MCPError) as caught:
            await client.call_tool("no_such_tool", {})
        return caught.value.code, modern(client)

    code, is_modern = with_client(bridge, demo, mode, body)
    assert code == (-32602 if is_modern else -32601)


@pytest.mark.parametrize(
    "arguments",
    [{}, {**CALL, "var1": "6"}, {**CALL, "var1": True}, {**CALL, "func": "power"}, {**CALL, "extra": 1}],
    ids=["missing", "string", "boolean", "enum", "extra"],
)
def test_bad_arguments_never_reach_the_code(demo, bridge, mode, arguments):
    async def body(client):
        if modern(client):
            result = await client.call_tool("demo_calculator_tool", arguments)
            return result.is_error, result.content[0].text
        with pytest.raises(MCPError) as caught:
            await client.call_tool("demo_calculator_tool", arguments)
        assert caught.value.code == -32602
        return True, caught.value.message

    refused, message = with_client(bridge, demo, mode, body)
    assert refused
    assert any(name in message for name in ("var1", "var2", "func", "extra")), message


def test_a_resource_is_listed_and_read(demo, bridge, mode):
    async def body(client):
        return await client.list_resources(), await client.read_resource("demo://readme")

    listed, read = with_client(bridge, demo, mode, body)
    assert [(str(r.uri), r.name, r.mime_type) for r in listed.resources] == [
        ("demo://readme", "demo_readme", "text/markdown")]
    assert read.contents[0].text.startswith("# Demo group")
    assert read.contents[0].mime_type == "text/markdown"


def test_an_unknown_resource_is_an_error(demo, bridge, mode):
    async def body(client):
        with pytest.raises(MCPError) as caught:
            await client.read_resource("demo://nothing")
        return caught.value.code, modern(client)

    code, is_modern = with_client(bridge, demo, mode, body)
    assert code == (-32602 if is_modern else -32002)


def test_a_prompt_is_rendered(demo, bridge, mode):
    async def body(client):
        got = await client.get_prompt("demo_explain_prompt", {"expression": "6 * 7", "reader": "a child"})
        return await client.list_prompts(), got

    listed, got = with_client(bridge, demo, mode, body)
    (prompt,) = listed.prompts
    assert sorted(a.name for a in prompt.arguments) == ["expression", "reader"]
    assert prompt.meta["settings"] == {"tone": "friendly", "max_steps": 5}
    text = got.messages[0].content.text
    assert "Explain `6 * 7` to a child." in text
    assert "## Settings" in text
    assert "{{" not in text and not text.startswith("---")


def test_a_wrong_key_is_an_error_of_each_call(demo, bridge, mode):
    if mode == "auto":
        pytest.skip("the client's probe and handshake both fail, so it never connects")

    async def body(client):
        with pytest.raises(MCPError) as caught:
            await client.call_tool("demo_calculator_tool", CALL)
        return caught.value

    if mode == "legacy":
        with pytest.raises((MCPError, ExceptionGroup)) as caught:
            with_client(bridge, demo, mode, body, key="rmk_wrong")
        assert "-32001" in str(error_of(caught.value).code)
    else:
        error = with_client(bridge, demo, mode, body, key="rmk_wrong")
        assert error.code == -32001
        assert "rmk_wrong" not in json.dumps([error.message, error.data])


def error_of(error):
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error

"""examples/real-group over published libraries, installed from the package index by the deploy step."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import programs
from clients import with_client

TOOLS = {
    "array_statistics", "calculate", "convert_time", "current_time", "draw_badge", "fetch_many", "order_total",
    "parallel_primes", "sheet_totals", "table_summary", "to_markdown", "word-outline",
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    with programs.serving(programs.ROOT / "examples" / "real-group", folder, group="real") as worker:
        yield worker


def content(worker, tool, **arguments):
    result = worker.rpc("tools/call", {"name": tool, "arguments": arguments})["result"]
    assert result["isError"] is False, result
    return result["content"][0]


def value(worker, tool, **arguments):
    return json.loads(content(worker, tool, **arguments)["text"])


def failure(worker, tool, **arguments):
    result = worker.rpc("tools/call", {"name": tool, "arguments": arguments})["result"]
    assert result["isError"] is True, result
    return result["content"][0]["text"]


def test_every_package_loads_and_every_golden_call_passes(real):
    assert real.report["errors"] == []
    assert real.report["outcome"] == "ok"
    assert real.report["golden"]["failed"] == 0
    assert real.report["golden"]["passed"] >= 14
    assert "--hash=sha256:" in real.report["lock"]
    assert {tool["name"] for tool in real.rpc("tools/list")["result"]["tools"]} == TOOLS


def test_numpy_values_come_out_as_json(real):
    answer = value(real, "array_statistics", values=[1, 2, 3, 4], bins=2)
    assert answer["count"] == 4 and answer["mean"] == 2.5 and answer["sorted"] is True
    assert answer["histogram"] == [2, 2]


def test_two_packages_have_a_utils_module_of_the_same_name(real):
    assert failure(real, "array_statistics", values=[]) == "ValueError: values is empty: give at least one number"
    rows = value(real, "table_summary", csv="k,v\na,1\na,2\nb,5\n", group_by="k", value="v")
    assert rows == [{"k": "a", "count": 2, "sum": 3, "mean": 1.5}, {"k": "b", "count": 1, "sum": 5, "mean": 5.0}]
    assert "no column z" in failure(real, "table_summary", csv="k,v\na,1\n", group_by="z", value="v")


def test_pydantic_models_decimals_and_enums_come_out_by_their_rules(real):
    lines = [{"sku": "A", "quantity": 3, "unit_price": "0.10"}]
    answer = value(real, "order_total", customer="Ada", lines=lines)
    assert answer == {"customer": "Ada", "currency": "EUR", "net": "0.30", "tax": "0.06", "gross": "0.36", "size": "small"}


def test_an_image_is_an_image_block(real):
    block = content(real, "draw_badge", label="a", value="b", colour="green")
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(block["data"]).startswith(b"\x89PNG")


def test_bytes_of_a_resource_are_a_blob(real):
    listed = {r["name"]: r for r in real.rpc("resources/list")["result"]["resources"]}
    read = real.rpc("resources/read", {"uri": listed["logo"]["uri"]})["result"]["contents"][0]
    assert base64.b64decode(read["blob"]).startswith(b"\x89PNG")
    versions = real.rpc("resources/read", {"uri": listed["library_versions"]["uri"]})["result"]["contents"][0]
    assert "numpy" in json.loads(versions["text"])


def test_async_calls_share_one_client_and_one_loop(real):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: value(real, "fetch_many", paths=[f"/{i}", "/missing"]), range(24)))
    for number, (found, missing) in enumerate(answers):
        assert found == {"path": f"/{number}", "status": 200, "text": f"hello from /{number}"}
        assert missing["status"] == 404


def test_functions_of_published_servers_come_out_with_their_own_types(real):
    answer = value(real, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Kathmandu")
    assert answer["time_difference"] == "+5.75h"
    assert answer["target"]["timezone"] == "Asia/Kathmandu"
    assert failure(real, "current_time", timezone="No/Where").startswith("McpError: ")
    assert "1025" in content(real, "calculate", expression="2 ^ 10 + 1")["text"]


def test_a_call_into_c_that_nothing_can_interrupt_ends_and_the_others_go_on(real):
    endless = real.rpc("tools/call", {"name": "calculate", "arguments": {"expression": "9**9**9"}})
    assert endless["result"]["isError"] is True
    assert value(real, "parallel_primes", limit=100) == 25


def test_printing_and_forking_tools_answer_with_what_they_return(real):
    assert value(real, "word-outline", title="Plan", sections=["One"]) == ["Plan", "One"]
    programs.until(lambda: "read back" in real.log.read_text(), "what the tool prints is logged", real.alive)
    assert value(real, "parallel_primes", limit=1000) == 168


def test_the_second_deploy_reuses_the_installed_requirements(real, tmp_path_factory):
    code, report = programs.deploy(
        programs.ROOT / "examples" / "real-group", real.folder, "--uv", "/bin/false", group="real")
    assert code == 0, json.dumps(report["errors"], indent=1)
    assert report["deps"] == real.report["deps"]


@pytest.mark.parametrize("bridge", ["published", "ours"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_official_client_takes_every_kind_of_result(real, bridge, mode):
    async def body(client):
        await client.list_tools()
        badge = await client.call_tool("draw_badge", {"label": "a", "value": "b", "colour": "red"})
        table = await client.call_tool("sheet_totals", {"header": ["a"], "rows": [[1], [2]]})
        return badge, table

    badge, table = with_client(bridge, real, mode, body)
    assert badge.content[0].mime_type == "image/png"
    assert json.loads(table.content[0].text)["totals"] == {"a": 3}

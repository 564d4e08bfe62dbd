"""What our bridge does better than the published one: calls run side by side, a cancel arrives, progress comes through,
and every line on stdout is a JSON-RPC message whatever goes wrong."""

import asyncio
import json
import subprocess

import pytest

import programs
from clients import BRIDGES, MODES, with_client


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_call_does_not_hold_back_a_quick_one(probe, folder, mode):
    end = folder / "end"

    async def body(client):
        slow = asyncio.create_task(client.call_tool("waits", {"path": str(end)}))
        await asyncio.sleep(0)
        quick = await client.call_tool("echo", {"text": "quick"})
        first = not slow.done()
        end.touch()
        return first, quick.content[0].text, (await slow).content[0].text

    assert with_client("ours", probe, mode, body) == (True, "quick", "rested")


@pytest.mark.parametrize("mode", MODES)
def test_progress_reaches_the_client(probe, mode):
    seen = []

    async def on_progress(progress, total, message):
        seen.append((progress, total, message))

    async def body(client):
        return await client.call_tool("steps", {"count": 3}, progress_callback=on_progress)

    assert with_client("ours", probe, mode, body).content[0].text == "done"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


def test_a_cancel_of_the_client_reaches_the_code(probe, folder):
    mark = folder / "mark"

    async def body(client):
        call = asyncio.create_task(client.call_tool("patient", {"path": str(mark)}))
        while not mark.exists() or not mark.read_text():
            await asyncio.sleep(0.01)
        call.cancel()
        while mark.read_text() != "cancelled":
            await asyncio.sleep(0.01)

    with_client("ours", probe, "legacy", body)


def told(worker, text, all_there, key=None, target=None):
    """All of stdout. Stdin ends when `all_there` says so of what has come: after that the bridge has little time for answers."""
    command = [*BRIDGES["ours"], "--target", target or worker.address, "--key", key or worker.key]
    out = b""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=programs.environment()) as bridge:
        bridge.stdin.write(text)
        bridge.stdin.flush()
        while not all_there(out) and (more := bridge.stdout.read1()):
            out += more
        bridge.stdin.close()
        out += bridge.stdout.read()
        error = bridge.stderr.read()
    assert bridge.returncode == 0, error.decode()
    return out


def lines_for(worker, text, answers=1, **how):
    out = told(worker, text, lambda out: out.count(b"\n") >= answers, **how)
    return [json.loads(line) for line in out.splitlines()]


def test_junk_lines_are_answered_and_the_stream_goes_on(probe):
    ping = b'{"jsonrpc":"2.0","id":5,"method":"ping"}\n'
    answers = lines_for(probe, b"{nonsense\n\xef\xbb\xbf" + ping + b"\n" + ping, answers=3)
    assert sorted(str(a.get("id")) for a in answers) == ["5", "None", "None"]
    assert [a["error"]["code"] for a in answers if "error" in a] == [-32700, -32700]


def test_content_length_framing_is_answered_in_kind(probe):
    ping = b'{"jsonrpc":"2.0","id":5,"method":"ping"}'
    framed = b"Content-Length: %d\r\n\r\n%s" % (len(ping), ping)
    head, body = told(probe, framed, lambda out: out.endswith(b"}")).split(b"\r\n\r\n")
    assert head == b"Content-Length: %d" % len(body)
    assert json.loads(body)["id"] == 5


def test_net16_each_refusal_is_an_error_with_its_id(probe):
    ping = b'{"jsonrpc":"2.0","id":"a","method":"ping"}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    (wrong_key,) = lines_for(probe, ping, key="rmk_wrong")
    assert (wrong_key["id"], wrong_key["error"]["code"]) == ("a", -32001)
    assert wrong_key["error"]["data"]["grpc"] == "UNAUTHENTICATED"
    # An editor shows this text alone: it says which of the keys was refused.
    assert "it was the key of --key" in wrong_key["error"]["message"]
    assert "rmk_wrong" not in wrong_key["error"]["message"]
    (down,) = lines_for(probe, ping, target="127.0.0.1:1")
    assert (down["id"], down["error"]["code"]) == ("a", -32000)
    assert down["error"]["data"]["grpc"] == "UNAVAILABLE"


def test_run01_nothing_that_a_tool_prints_is_on_the_bridges_stdout(probe):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "prints", "arguments": {"text": "over-the-bridge"}}}
    (answer,) = lines_for(probe, json.dumps(call).encode() + b"\n")
    assert answer["result"]["content"][0]["text"] == "ok"

"""Every client that people use, against `ramen up` over HTTP and against `ramen bridge`: each does the same steps."""

import base64
import functools
import json
import subprocess
import sys

import pytest

import foreign
import groups
import programs
from up import Up

TEXT = "Grüße, 世界 🌍 \u2028 \"quoted\""
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
CLIENTS = {
    "python-2": (lambda: [sys.executable, foreign.SOURCES / "python" / "sdk2.py"], ["legacy", "auto", MODERN]),
    "python-1": (lambda: foreign.python("sdk1", foreign.SOURCES / "python" / "sdk1.py"), ["legacy"]),
    "typescript-2": (functools.partial(foreign.node, "sdk2.mjs"), ["legacy", "auto", MODERN]),
    "go": (lambda: foreign.go("client"), ["legacy", "auto"]),
    "typescript-1": (functools.partial(foreign.node, "sdk1.mjs"), ["legacy"]),
}
# A client that gives up says so over stdio; over HTTP it closes the stream of the request, which those that began with a handshake
# leave open. These tell nobody before they go.
SAY_NOTHING = {"python-1"}
DOORS = ["gateway", "bridge"]
EXPECTED = {
    "call": TEXT,
    "error": [True, "RuntimeError: no such city"],
    "progress": [[[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]], "done"],
    "resources": [["probe://notes", "probe://picture"], "Water the plants.", base64.b64encode(groups.PICTURE).decode()],
    "prompts": [["greet"], "Greet Ada in one sentence.\n\n## Settings\n\n```json\n{}\n```\n"],
    "cancel": "given up",
}


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    up = Up(folder, groups.probe_group(folder / "probe-group"))
    yield up
    up.stop()


def way(up, door):
    if door == "gateway":
        return {"url": up.url, "headers": {"Authorization": f"Bearer {up.key}"}}
    return {"command": [str(programs.BIN / "ramen"), "bridge", "--state-dir", str(up.state)], "env": programs.environment()}


@pytest.fixture(scope="module", params=[
    pytest.param((client, era, door), id=f"{client}-{era}-{door}")
    for client, (_, eras) in CLIENTS.items() for era in eras for door in DOORS])
def told(request, up, tmp_path_factory):
    """What one client told of one way in: it runs once, and each step is a test."""
    client, era, door = request.param
    command, _ = CLIENTS[client]
    mark = tmp_path_factory.mktemp("mark") / "mark"
    order = {**way(up, door), "era": era, "text": TEXT, "mark": str(mark), "seen": str(mark.with_name("seen")),
             "told": client not in SAY_NOTHING and (door == "bridge" or era != "legacy")}
    done = subprocess.run(command(), input=json.dumps(order), env=programs.environment(), capture_output=True, text=True,
                          timeout=programs.PATIENCE * 2)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout
    told = json.loads(done.stdout)
    told["era"], told["mark"] = era, mark
    return told


def test_the_newest_revision_that_both_know_is_spoken(told):
    assert told["version"] == (LEGACY if told["era"] == "legacy" else MODERN)


def test_the_tools_are_listed(told):
    assert {"echo", "raises", "steps", "patient"} <= set(told["list"])


def test_an_unknown_tool_is_a_protocol_error(told):
    assert told["unknown"] == (-32601 if told["era"] == "legacy" else -32602)


@pytest.mark.parametrize("step", EXPECTED)
def test_each_step_ends_as_it_should(told, step):
    assert told[step] == EXPECTED[step]


def test_a_call_that_was_given_up_does_not_run_on(told):
    programs.until(lambda: told["mark"].read_text() == "cancelled", "the code was told that nobody waits any more")

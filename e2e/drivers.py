"""The clients of e2e/foreign: one program each, all of which do the same steps and tell what came of them."""

import base64
import json
import subprocess
import sys
from functools import partial

import foreign
import groups
import programs

MODERN, LEGACY = "2026-07-28", "2025-11-25"
TEXT = "Grüße, 世界 🌍 \u2028 \"quoted\""
# How each is started, and the ways in which it can connect: the handshake of the older revisions, whichever revision is the newest
# that both know, the newest at once.
CLIENTS = {
    "python-2": (lambda: [sys.executable, foreign.SOURCES / "python" / "sdk2.py"], ["legacy", "auto", MODERN]),
    "python-1": (lambda: foreign.python("sdk1", foreign.SOURCES / "python" / "sdk1.py"), ["legacy"]),
    "typescript-2": (partial(foreign.node, "sdk2.mjs"), ["legacy", "auto", MODERN]),
    "typescript-1": (partial(foreign.node, "sdk1.mjs"), ["legacy"]),
    "go": (lambda: foreign.go("client"), ["legacy", "auto"]),
    "rust": (lambda: foreign.rust("client"), ["legacy", "auto", MODERN]),
}
# A client that gives up says so over stdio; over HTTP it closes the stream of the request, which those that began with a handshake
# leave open. These tell nobody before they go.
SAY_NOTHING = {"python-1"}
# What comes of each step against `groups.probe_group`.
EXPECTED = {
    "call": TEXT,
    "error": [True, "RuntimeError: no such city"],
    "progress": [[[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]], "done"],
    "resources": [["probe://notes", "probe://picture"], "Water the plants.", base64.b64encode(groups.PICTURE).decode()],
    "prompts": [["greet"], "Greet Ada in one sentence.\n\n## Settings\n\n```json\n{}\n```\n"],
    "cancel": "given up",
}


def run(client, era, way, folder, cancels=True, without=()):
    """What a client told of one way in; `cancels` when a call that it gives up is cancelled while it stays connected; the steps of
    `without` are left out."""
    mark = folder / "mark"
    order = {**way, "era": era, "text": TEXT, "mark": str(mark), "seen": str(folder / "seen"),
             "without": list(without),
             "told": cancels and client not in SAY_NOTHING and ("url" not in way or era != "legacy")}
    done = subprocess.run(CLIENTS[client][0](), input=json.dumps(order), env=programs.environment(), capture_output=True,
                          text=True, timeout=programs.PATIENCE * 2)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout
    return {**json.loads(done.stdout), "era": era, "mark": mark, "without": without}


def expected(told):
    """What should have come of the steps that were tried."""
    return {step: end for step, end in EXPECTED.items() if step not in told["without"]}


def ends(told):
    return {step: told[step] for step in expected(told)}


def over_http(up):
    """The gateway of a running `ramen up`."""
    return {"url": up.url, "headers": {"Authorization": f"Bearer {up.key}"}}


def over_stdio(*command):
    # What is remembered of servers is not put among what the person's own programs remember.
    environment = programs.environment(XDG_CACHE_HOME=str(programs.scratch() / "cache"))
    return {"command": [str(word) for word in command], "env": environment}


def bridge(up):
    """`ramen bridge` to a running `ramen up`."""
    return over_stdio(programs.BIN / "ramen", "bridge", "--state-dir", up.state)

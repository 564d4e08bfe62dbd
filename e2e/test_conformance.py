"""The official conformance suite against the gateway, at the wire of both eras."""

import subprocess

import pytest

import foreign
import programs
from header_proxy import HeaderProxy

BASELINES = programs.ROOT / "e2e" / "conformance"


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
    command = [*foreign.npm_program("@modelcontextprotocol/conformance", "dist/index.js"), "server", "--url", url,
               "--requirements", revision, "--expected-failures", BASELINES / f"{revision}.yaml", "-o", folder / "results"]
    done = subprocess.run(command, env=programs.environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

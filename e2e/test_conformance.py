"""The official conformance suite at the wire of both eras: against the gateway, against our client, and what is told of it."""

import os
import subprocess

import pytest

import conformance_table
import foreign
import programs
from conformance_table import REVISIONS
from header_proxy import HeaderProxy

PACKAGE = "@modelcontextprotocol/conformance"
BASELINES = programs.ROOT / "e2e" / "conformance"
PAGE = programs.ROOT / "docs" / "reference" / "protocol.md"


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


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Runs the suite for one side at one revision, once; gives its exit code, what it printed, and the folder of its results."""
    done = {}

    def run(side, revision, *args):
        if (side, revision) not in done:
            folder = tmp_path_factory.mktemp("results")
            command = [*foreign.npm_program(PACKAGE, "dist/index.js"), side, *args, "--requirements", revision, "-o", folder]
            ran = subprocess.run(command, env=programs.environment(), capture_output=True, text=True, timeout=600)
            done[side, revision] = ran.returncode, ran.stdout[-6000:] + ran.stderr[-2000:], folder
        return done[side, revision]

    return run


@pytest.fixture(scope="module")
def server(suite, url):
    return lambda revision: suite(
        "server", revision, "--url", url, "--expected-failures", BASELINES / f"{revision}.yaml")


@pytest.fixture(scope="module")
def client(suite):
    program = programs.BIN / "examples" / "conformance"
    if not program.exists():
        pytest.skip(f"there is no {program}: cargo build -p ramen-client --example conformance")
    return lambda revision: suite("client", revision, "--command", program)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_required_scenarios_pass_at_the_gateway_or_are_in_the_baseline(server, revision):
    code, said, _ = server(revision)
    assert code == 0, said


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_required_scenarios_pass_with_our_client_without_a_baseline(client, revision):
    code, said, _ = client(revision)
    assert code == 0, said


def test_the_page_tells_what_the_suite_said(server, client):
    runs = {side: {revision: conformance_table.results(run(revision)[2]) for revision in REVISIONS}
            for side, run in (("server", server), ("client", client))}
    why = {revision: conformance_table.reasons(BASELINES / f"{revision}.yaml") for revision in REVISIONS}
    page = conformance_table.render(foreign.pinned(PACKAGE), runs, why)
    if os.environ.get("RAMEN_WRITE_PAGES"):
        PAGE.write_text(page)
    assert PAGE.exists() and PAGE.read_text() == page, "docs/reference/protocol.md is not what the suite said: make protocol"

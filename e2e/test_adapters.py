"""What people put between a client and us, unchanged: adapters that give a client of stdio a URL, and the other way round."""

import os
import shlex
import signal
import socket
import subprocess

import pytest

import drivers
import foreign
import programs


def bearer(up):
    return f"Authorization: Bearer {up.key}"


# Each makes a stdio server of our URL.
TO_STDIO = {
    "mcp-remote": lambda up: foreign.npm_program("mcp-remote", "dist/proxy.js", up.url, "--header", bearer(up)),
    "supergateway": lambda up: foreign.npm_program(
        "supergateway", "dist/index.js", "--streamableHttp", up.url, "--oauth2Bearer", up.key, "--logLevel", "none"),
    "mcp-proxy": lambda up: foreign.python(
        "sdk1", "-m", "mcp_proxy", "--transport", "streamablehttp", "--headers", "Authorization", f"Bearer {up.key}", up.url),
    "ramen bridge": lambda up: [programs.BIN / "ramen", "bridge", up.url, "--header", bearer(up)],
}


# It hands requests on through a client of its own, which asks for no progress.
TO_STDIO_WITHOUT = {"supergateway": ["progress"]}


@pytest.fixture(scope="module", params=[
    pytest.param((adapter, era), id=f"{adapter}-{era}") for adapter in TO_STDIO for era in ("legacy", "auto")])
def to_stdio(request, probe_up, tmp_path_factory):
    adapter, era = request.param
    way = drivers.over_stdio(*TO_STDIO[adapter](probe_up))
    # A cancel has to get through two programs, and most hand on none: what counts is that the call ends with the connection.
    return drivers.run("python-2", era, way, tmp_path_factory.mktemp("mark"), cancels=adapter == "ramen bridge", 
                       without=TO_STDIO_WITHOUT.get(adapter, ()))


def test_each_step_reaches_the_gateway_through_an_adapter(to_stdio):
    assert drivers.ends(to_stdio) == drivers.expected(to_stdio)


def test_a_call_ends_at_the_latest_when_the_client_goes(to_stdio):
    programs.until(lambda: to_stdio["mark"].read_text() == "cancelled", "the code was told that nobody waits any more")


# Each makes a URL of our bridge.
TO_HTTP = {
    "supergateway": lambda up, port: foreign.npm_program(
        "supergateway", "dist/index.js", "--stdio", shlex.join(drivers.bridge(up)["command"]), "--outputTransport",
        "streamableHttp", "--port", str(port)),
    "mcp-proxy": lambda up, port: foreign.python(
        "sdk1", "-m", "mcp_proxy", "--port", str(port), "--", *drivers.bridge(up)["command"]),
}


# It answers in plain JSON, which has no place for progress, and hands on no cancel, not even that the client went away.
TO_HTTP_WITHOUT = {"mcp-proxy": ["progress", "cancel"]}


@pytest.fixture(scope="module", params=TO_HTTP)
def to_http(request, probe_up, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    with programs.free_port() as port, (folder / "log").open("wb") as log:
        process = subprocess.Popen(TO_HTTP[request.param](probe_up, port), env=programs.environment(),
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            programs.until(lambda: listens(port), f"{request.param} listens", lambda: process.poll() is None)
            yield drivers.run("typescript-1", "legacy", {"url": f"http://127.0.0.1:{port}/mcp", "headers": {}}, folder,
                              without=TO_HTTP_WITHOUT.get(request.param, ()))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(programs.PATIENCE)


def listens(port):
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def test_each_step_reaches_the_bridge_through_an_adapter(to_http):
    assert drivers.ends(to_http) == drivers.expected(to_http)

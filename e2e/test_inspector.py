"""The Inspector on the command line, in both eras, against the gateway and the bridge."""

import json
import subprocess

import pytest

import drivers
import foreign
import programs

DOORS = {
    "gateway": lambda up: [up.url, "--transport", "http", "--header", f"Authorization: Bearer {up.key}"],
    "bridge": lambda up: drivers.bridge(up)["command"],
}


def inspect(target, era, method, *args):
    """Exit code (0 fine, 3 not let in, 4 not reached, 5 error of a tool, 6 schemas of tools that not every client takes),
    what came, and what was said about it."""
    command = foreign.npm_program("@modelcontextprotocol/inspector", "clients/launcher/build/index.js", "--cli", *target,
                                  "--protocol-era", era, "--method", method, *args)
    done = subprocess.run(command, env=programs.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=programs.PATIENCE)
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


@pytest.fixture(params=[pytest.param((door, era), id=f"{door}-{era}") for door in DOORS for era in ("legacy", "modern")])
def told(request, probe_up):
    door, era = request.param

    def ask(method, *args):
        return inspect(DOORS[door](probe_up), era, method, *args)

    ask.era = era
    return ask


def test_the_revision_of_the_era_is_spoken(told):
    code, answer, _ = told("initialize")
    assert (code, answer["serverInfo"]["name"]) == (0, "probe")
    assert answer["protocolVersion"] == {"legacy": drivers.LEGACY, "modern": drivers.MODERN}[told.era]


def test_every_client_takes_the_schemas_of_the_tools(told):
    code, answer, said = told("tools/list", "--strict")
    assert code == 0, said
    assert {"echo", "paced"} <= {tool["name"] for tool in answer["tools"]}


def test_a_tool_is_called_and_its_failure_is_the_tools_own(told):
    code, answer, _ = told("tools/call", "--tool-name", "echo", "--tool-arg", "text=hello")
    assert (code, answer["content"][0]["text"]) == (0, "hello")
    code, answer, said = told("tools/call", "--tool-name", "raises", "--tool-arg", "text=no such city")
    assert (code, answer["content"][0]["text"]) == (5, "RuntimeError: no such city"), said


def test_resources_and_prompts_come_through(told):
    code, answer, _ = told("resources/read", "--uri", "probe://notes")
    assert (code, answer["contents"][0]["text"]) == (0, "Water the plants.")
    code, answer, _ = told("prompts/get", "--prompt-name", "greet", "--prompt-args", "name=Ada")
    assert code == 0 and answer["messages"][0]["content"]["text"].startswith("Greet Ada")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_wrong_key_is_told_apart_from_a_server_that_is_not_there(probe_up, era):
    target = [probe_up.url, "--transport", "http", "--header", "Authorization: Bearer rmk_wrong"]
    code, _, said = inspect(target, era, "tools/list")
    assert code == 3, said
    code, _, said = inspect(["http://127.0.0.1:1/default/probe/mcp", "--transport", "http"], era, "tools/list")
    assert code == 4, said

"""The frameworks that agents are built with, as they come, on the gateway and on the bridge."""

import json
import subprocess

import pytest

import drivers
import foreign
import groups
import programs
from drivers import EXPECTED

FRAMEWORKS = {"langchain": ("sdk1", "langchain_tools.py"), "pydantic-ai": ("sdk2", "pydantic_tools.py")}
DOORS = {"gateway": drivers.over_http, "bridge": drivers.bridge}


@pytest.fixture(scope="module", params=[
    pytest.param((framework, door), id=f"{framework}-{door}") for framework in FRAMEWORKS for door in DOORS])
def told(request, probe_up, tmp_path_factory):
    framework, door = request.param
    venv, script = FRAMEWORKS[framework]
    order = {**DOORS[door](probe_up), "text": drivers.TEXT, "seen": str(tmp_path_factory.mktemp("seen") / "seen")}
    done = subprocess.run(foreign.python(venv, foreign.SOURCES / "python" / script), input=json.dumps(order) + "\n",
                          env=programs.environment(), capture_output=True, text=True, timeout=programs.PATIENCE * 2)
    assert done.returncode == 0, done.stderr[-4000:]
    return {**json.loads(done.stdout), "framework": framework}


def test_the_tools_are_its_own_tools(told):
    assert {"echo", "raises", "paced"} <= set(told["list"])
    assert told["call"] == EXPECTED["call"]
    assert told["progress"] == EXPECTED["progress"]


def test_an_exception_of_the_code_is_told(told):
    failed, text = told["error"]
    assert failed and "RuntimeError: no such city" in text


def test_resources_and_prompts_come_through(told):
    assert told["resources"] == ["Water the plants.", groups.PICTURE.hex()]
    assert told["prompts"] == EXPECTED["prompts"][1]


def test_an_agent_calls_a_tool(told):
    # LangChain's agents are in another package, and its tools were called above.
    assert told.get("agent") == {"langchain": None, "pydantic-ai": ["echo"]}[told["framework"]]

"""Every client that people use, against `ramen up` over HTTP and against `ramen bridge`: each does the same steps."""

import pytest

import drivers
import programs
from drivers import CLIENTS, EXPECTED, LEGACY, MODERN

DOORS = {"gateway": drivers.over_http, "bridge": drivers.bridge}


@pytest.fixture(scope="module", params=[
    pytest.param((client, era, door), id=f"{client}-{era}-{door}")
    for client, (_, eras) in CLIENTS.items() for era in eras for door in DOORS])
def told(request, probe_up, tmp_path_factory):
    """It runs once, and each step is a test."""
    client, era, door = request.param
    return drivers.run(client, era, DOORS[door](probe_up), tmp_path_factory.mktemp("mark"))


def test_the_newest_revision_that_both_know_is_spoken(told):
    assert told["version"] == (LEGACY if told["era"] == "legacy" else MODERN)


def test_the_tools_are_listed(told):
    assert {"echo", "raises", "paced", "patient"} <= set(told["list"])


def test_an_unknown_tool_is_a_protocol_error(told):
    assert told["unknown"] == (-32601 if told["era"] == "legacy" else -32602)


def test_results_pass_the_clients_own_check_against_the_output_schema(told):
    scalar = None if told["era"] == "legacy" else 13
    assert told["output"] == [scalar, {"sum": 13, "product": 42}, "13"]


@pytest.mark.parametrize("step", EXPECTED)
def test_each_step_ends_as_it_should(told, step):
    assert told[step] == EXPECTED[step]


def test_a_call_that_was_given_up_does_not_run_on(told):
    programs.until(lambda: told["mark"].read_text() == "cancelled", "the code was told that nobody waits any more")

"""Repos in the wild hold more than the contract says. They load as they are."""

import json


def text(worker, tool, **arguments):
    answer = worker.rpc("tools/call", {"name": tool, "arguments": arguments})
    assert answer["result"]["isError"] is False, answer
    return answer["result"]["content"][0]["text"]


def test_it_deploys_without_an_error_and_its_golden_calls_pass(wild):
    assert wild.report["outcome"] == "ok", json.dumps(wild.report, indent=1)
    assert wild.report["errors"] == []
    assert wild.report["golden"] == {"passed": 2, "failed": 0}


def test_left_over_files_are_neither_packages_nor_faults(wild):
    tools = wild.rpc("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["environment", "hello", "shout"]


def test_utils_of_any_name_belong_to_their_package_alone(wild):
    assert text(wild, "hello", name="Ada") == "hello Ada."
    assert text(wild, "shout", name="Ada") == "ADA!"


def test_env_yaml_is_exported_and_a_missing_secret_skips_its_key_with_a_warning(wild):
    assert text(wild, "environment", name="PORT") == "8080"
    assert text(wild, "environment", name="ABSENT") == "unset"
    assert any("ABSENT" in json.dumps(warning) for warning in wild.report["warnings"]), wild.report["warnings"]


def test_the_keys_of_the_worker_are_not_in_the_environment_of_the_code(wild):
    for name in ("RAMEN_KEYS_DIR", "RAMEN_ADMIN_KEY_FILE", "RAMEN_STORE", "RAMEN_DESIRED"):
        assert text(wild, "environment", name=name) == "unset"

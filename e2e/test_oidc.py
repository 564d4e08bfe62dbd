"""Sign-in from end to end: our client, our gateway, and an OpenID Connect provider that others wrote."""

import json
import urllib.request

import pytest

import oidc
import programs
from up import Up

RULES = {"rules": [
    {"groups": ["staff"], "tools": ["*"], "resources": ["*"], "prompts": ["*"]},
    {"groups": ["guests"], "tools": ["other_*"], "resources": ["demo://readme"]},
]}
OPERATORS = {"rules": [
    {"groups": ["staff"], "level": "write"},
    {"groups": ["guests"], "level": "read", "namespaces": ["other"]},
]}
CALL = ["call", "demo_calculator_tool", "var1=6", "var2=7", "func=multiply"]


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    provider = oidc.Provider(tmp_path_factory.mktemp("provider"))
    yield provider
    provider.stop()


@pytest.fixture(scope="module")
def guarded(provider, demo, tmp_path_factory):
    """A gateway that trusts the provider. Where clients reach it has to be known before it starts."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "operators").mkdir()
    (folder / "operators" / "rules.yaml").write_text(json.dumps(OPERATORS))
    with programs.free_port() as port:
        listen = f"127.0.0.1:{port}"
        settings = {"publicUrl": f"http://{listen}", "issuers": [{"issuer": provider.issuer, "scopes": ["tools"]}]}
        (folder / "oidc.yaml").write_text(json.dumps(settings))
        gateway = programs.Gateway(folder, {"demo": demo}, listen=listen, access=RULES,
                                   RAMEN_OIDC_CONFIG=str(folder / "oidc.yaml"),
                                   RAMEN_OPERATORS_DIR=str(folder / "operators"))
    gateway.settings = folder / "oidc.yaml"
    yield gateway
    gateway.stop()


@pytest.fixture
def person(folder):
    """Runs a command of ours, as one person of this machine."""
    env = programs.environment(HOME=str(folder), XDG_STATE_HOME=str(folder), XDG_CONFIG_HOME=str(folder),
                               XDG_CACHE_HOME=str(folder))

    def run(*args, at, login):
        return oidc.ramen(*args, "--server", at, login=login, env=env)

    return run


@pytest.fixture
def ramen(guarded, person):
    """The same against the gateway's group."""
    return lambda *args, login: person(*args, at=guarded.at("demo"), login=login)


def test_a_person_signs_in_once_and_uses_what_the_rules_allow(ramen, folder):
    code, out, told, asked = ramen("ls", "-o", "json", login="staff-ann")
    assert (code, asked) == (0, 1), told
    assert [tool["name"] for tool in json.loads(out)["tools"]] == ["demo_calculator_tool"]
    tokens = folder / "ramen" / "mcp-tokens.json"
    assert tokens.stat().st_mode & 0o777 == 0o600
    code, out, told, asked = ramen(*CALL, login="staff-ann")
    assert (code, out.strip(), asked) == (0, "42", 0), told


def test_what_the_rules_do_not_allow_is_not_there(ramen):
    code, out, told, asked = ramen("ls", "-o", "json", login="guest-bob")
    listed = json.loads(out)
    assert (code, asked) == (0, 1), told
    assert (listed["tools"], listed["prompts"]) == ([], [])
    assert [resource["uri"] for resource in listed["resources"]] == ["demo://readme"]
    code, out, told, _ = ramen(*CALL, login="guest-bob")
    assert (code, out) == (2, ""), told
    code, out, told, _ = ramen("call", "no_such_tool", login="guest-bob")
    assert code == 2, told


def test_the_callers_name_is_in_the_workers_log_and_no_token_is_in_any(ramen, guarded, demo, folder):
    ramen(*CALL, login="staff-cara")
    tokens = json.loads((folder / "ramen" / "mcp-tokens.json").read_text())
    secrets = [value for value in json.dumps(tokens).split('"') if value.count(".") == 2 and len(value) > 100]
    assert secrets, tokens
    for log in (guarded.log.read_text(), demo.log.read_text()):
        for secret in secrets:
            assert secret not in log and secret.rsplit(".", 1)[1] not in log


def operations(answer):
    code, out, told, _ = answer
    assert code == 0, told
    return json.loads(out)


def test_an_operator_signs_in_and_does_what_the_operators_rules_allow(person, guarded):
    at = f"{guarded.url}/api/v1/mcp"
    listed = operations(person("ls", "-o", "json", at=at, login="staff-dora"))
    assert {"groups_list", "groups_deploy", "keys_rotate"} <= {tool["name"] for tool in listed["tools"]}
    shown = operations(person("call", "groups_list", at=at, login="staff-dora"))
    assert [group["group"] for group in shown["groups"]] == ["default/demo"]


def test_a_guest_looks_at_the_namespaces_of_guests_alone(person, guarded):
    at = f"{guarded.url}/api/v1/mcp"
    listed = operations(person("ls", "-o", "json", at=at, login="guest-eve"))
    assert {tool["name"] for tool in listed["tools"]} == {
        "groups_list", "groups_get", "groups_errors", "groups_events", "tools_list", "calls_recent"}
    assert operations(person("call", "groups_list", at=at, login="guest-eve")) == {"groups": []}
    code, out, told, _ = person("call", "groups_get", "group=demo", at=at, login="guest-eve")
    assert code != 0 and "there is no group default/demo" in out + told


def test_who_signed_in_is_on_record_for_what_they_changed(person, provider, folder):
    (folder / "operators").mkdir()
    (folder / "operators" / "rules.yaml").write_text(json.dumps(OPERATORS))
    (folder / "oidc.yaml").write_text(json.dumps({"issuers": [{"issuer": provider.issuer, "scopes": ["tools"]}]}))
    up = Up(folder, programs.ROOT / "examples" / "demo-group", RAMEN_OIDC_CONFIG=str(folder / "oidc.yaml"),
            RAMEN_OPERATORS_DIR=str(folder / "operators"))
    try:
        operations(person("call", "groups_suspend", "group=demo", at=f"{up.api}/mcp", login="staff-fay"))
        told = operations(person("call", "groups_events", "group=demo", at=f"{up.api}/mcp", login="staff-fay"))
        (event,) = [event for event in told["events"] if event.get("change") == "suspend"]
        assert event["caller"].startswith("oidc:") and event["caller"].endswith(":staff-fay")
    finally:
        up.stop()


def test_other_issuers_count_without_a_restart_and_a_bad_file_changes_nothing(guarded, provider):
    described = f"{guarded.url}/.well-known/oauth-protected-resource/default/demo/mcp"

    def told():
        with urllib.request.urlopen(described, timeout=programs.PATIENCE) as answer:
            return json.load(answer)["authorization_servers"]

    def put(text):
        new = guarded.settings.with_suffix(".new")
        new.write_text(text)
        new.replace(guarded.settings)

    before = guarded.settings.read_text()
    settings = json.loads(before)
    settings["issuers"].append({"issuer": "https://login.example.com"})
    put(json.dumps(settings))
    programs.until(lambda: told() == [provider.issuer, "https://login.example.com"], "the new issuer counts")
    put("issuers: [")
    programs.until(lambda: "the issuers stay as they are" in guarded.log.read_text(), "the file is refused")
    assert told() == [provider.issuer, "https://login.example.com"]
    put(before)
    programs.until(lambda: told() == [provider.issuer], "the old file counts again")

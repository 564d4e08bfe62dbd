"""The platform's operations at `ramen up`, with a repository that moves: what each asks for comes true, and what
describes them is good OpenAPI."""

import json
import shutil
import subprocess

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import programs
from clients import over_http
from up import UpOfFile

GROUP = """
apiVersion: ramen.dev/v1alpha1
kind: McpGroup
metadata: {name: soup}
spec:
  source: {url: "file://%s", ref: {branch: main}, interval: 1h}
  network: {allowedCIDRs: ["127.0.0.0/8"]}
"""


class Repository:
    def __init__(self, folder):
        self.folder = folder
        package = folder / "mcp" / "tools" / "say"
        package.mkdir(parents=True)
        (package / "say.json").write_text(json.dumps(
            {"type": "tool", "name": "say", "description": "Says.", "callable": "say",
             "input": {"word": {"type": "string", "description": "Anything."}}}))
        self.code = package / "say.py"
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *args):
        who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        done = subprocess.run(["git", *who, *args], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def push(self, text):
        self.code.write_text(f"def say(word):\n    return {text!r}\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", text)
        return self.git("rev-parse", "HEAD")


class Moving(UpOfFile):
    """A group of a repository that moves."""

    def __init__(self, folder):
        self.repository = Repository(folder / "repo")
        self.first = self.repository.push("one")
        self.repository.git("tag", "v1")
        super().__init__(folder, "soup", GROUP % self.repository.folder)

    def ask(self, path, **input):
        """`POST /api/v1/<path>`: status and answer."""
        return self.send(f"{self.api}/{path}", "--json", json.dumps({"group": "soup", **input}))

    def send(self, url, *args):
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--max-time", "30", "--write-out", "\n%{http_code}", *args, url,
             "--header", f"Authorization: Bearer {self.operator}"], capture_output=True, text=True, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body)

    def done(self, path, **input):
        status, answer = self.ask(path, **input)
        assert status == 200, answer
        return answer

    def says(self, text):
        async def body(client):
            return (await client.call_tool("say", {"word": "a secret argument"})).content[0].text

        programs.until(lambda: over_http(self.url, self.key, "legacy", body) == text, f"the tool says {text}")


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    if not shutil.which("git"):
        pytest.skip("no git here")
    up = Moving(tmp_path_factory.mktemp("operations"))
    yield up
    up.stop()


def test_a_ref_is_deployed_taken_back_frozen_and_let_go(up):
    up.says("one")
    status, answer = up.ask("groups/rollback")
    assert (status, answer["error"]["code"]) == (409, "conflict"), "nothing served before"
    second = up.repository.push("two")
    up.done("groups/deploy", ref="main")
    up.says("two")
    up.done("groups/rollback")
    up.says("one")
    assert up.done("groups/get")["revision"].endswith(up.first)
    up.done("groups/deploy", ref=second)
    up.says("two")
    up.done("groups/deploy", ref="refs/tags/v1")
    up.says("one")
    up.done("groups/suspend")
    assert up.done("groups/get")["suspended"] is True
    for path, input in (("groups/deploy", {"ref": "main"}), ("groups/rollback", {})):
        status, answer = up.ask(path, **input)
        assert (status, answer["error"]["code"]) == (409, "conflict"), answer
    up.done("groups/resume")
    up.done("groups/deploy", ref="main")
    up.says("two")
    for ref in ("a..b", "-x"):
        status, answer = up.ask("groups/deploy", ref=ref)
        assert (status, answer["error"]["code"]) == (400, "invalid"), answer
    changes = [event["change"] for event in up.done("groups/events")["events"] if "change" in event]
    assert changes[:3] == ["deploy", "resume", "suspend"], changes


def test_a_ref_that_is_not_there_changes_nothing_and_is_in_the_errors(up):
    up.done("groups/deploy", ref="nowhere")
    programs.until(lambda: up.done("groups/errors")["errors"], "the group tells what is wrong")
    assert "nowhere" in json.dumps(up.done("groups/errors"))
    assert up.done("groups/get")["ready"] is True
    up.done("groups/deploy", ref="main")
    programs.until(lambda: not up.done("groups/errors")["errors"], "the group is well again")


def test_calls_of_late_are_kept_without_what_went_in_and_out(up):
    up.says("two")
    calls = up.done("calls/recent", limit=5)["calls"]
    assert len(calls) <= 5 and calls[0]["name"] == "say" and calls[0]["caller"].startswith("key:")
    assert "a secret argument" not in json.dumps(calls) and '"two"' not in json.dumps(calls)


def test_what_describes_the_operations_is_good_openapi(up):
    status, document = up.send(f"{up.api}/openapi.json")
    assert status == 200 and document["openapi"].startswith("3.1")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    # The validator finds faults.
    del document["info"]["version"]
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) != []


def closed(schema):
    """The same, with no member that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {name: closed(one) for name, one in schema.items()}
    return {**whole, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else whole


def test_answers_are_what_their_schemas_say_and_nothing_else(up):
    import jsonschema

    _, document = up.send(f"{up.api}/openapi.json")
    inputs = {"groups.list": None, "groups.get": {}, "groups.deploy": {"ref": "nowhere"}, "groups.errors": {},
              "tools.list": {}, "calls.recent": {}, "groups.suspend": {}, "groups.resume": {}, "keys.rotate": {},
              "groups.rollback": {}, "groups.events": {}}
    assert {f"/api/v1/{name.replace('.', '/')}" for name in inputs} == set(document["paths"])
    up.repository.push("three")
    up.done("groups/deploy", ref="main")
    up.says("three")
    for name, more in inputs.items():
        path = name.replace(".", "/")
        input = {} if more is None else {"group": "soup", **more}
        status, answer = up.send(f"{up.api}/{path}", "--json", json.dumps(input))
        assert status == 200, (name, answer)
        described = document["paths"][f"/api/v1/{path}"]["post"]["responses"]["200"]
        jsonschema.validate(answer, closed(described["content"]["application/json"]["schema"]))
        if name == "groups.deploy":
            programs.until(lambda: up.done("groups/errors")["errors"], "there are errors to tell")

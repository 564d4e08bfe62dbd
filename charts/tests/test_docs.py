"""What docs/cluster shows is valid, and what can be tried without a cluster is tried."""

import hmac
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import openapi
import pytest
import yaml
from conftest import CHART, ROOT, template
from documents import FENCE, PAGES, blocks


def manifests() -> list[tuple[str, dict]]:
    documents = []
    for name, text in blocks("yaml").items():
        documents += [(name, d) for d in yaml.safe_load_all(text) if isinstance(d, dict) and "kind" in d]
    return documents


def kind_schema() -> dict:
    (path,) = (ROOT / "crds" / "yaml").glob("mcpgroups*.yaml")
    schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    def strict(node):
        if isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node:
                node["additionalProperties"] = False
            for value in node.values():
                strict(value)
        elif isinstance(node, list):
            for value in node:
                strict(value)

    strict(schema)
    schema["properties"] |= {"metadata": {"type": "object"}, "apiVersion": {}, "kind": {}}
    return schema


def is_valid_group(document: dict):
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(kind_schema()).iter_errors(document))
    assert error is None, f"{error.json_path}: {error.message}"


def test_pages_are_there_and_every_link_leads_somewhere():
    assert {page.stem for page in PAGES} == {"install", "upgrade", "day-2", "security", "gitops", "gateway", "sizing"}
    for page in PAGES:
        text = FENCE.sub("", page.read_text())
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in slugs, f"{page.name}: {target}"


def test_lines_fit_a_terminal():
    for page in PAGES:
        for number, line in enumerate(FENCE.sub("", page.read_text()).splitlines(), 1):
            assert line.startswith("|") or len(line) <= 125, f"{page.name}:{number}"


def test_objects_in_the_pages_are_valid():
    for name, document in manifests():
        if document["apiVersion"].startswith("ramen.dev/"):
            is_valid_group(document)
        elif openapi.specification() and (document["apiVersion"], document["kind"]) in openapi.kinds():
            assert openapi.check(document) == [], name


def test_the_group_that_the_notes_of_the_chart_show_is_valid():
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    text = re.search(r"<<'YAML'\n(.*?)\n  YAML", notes, re.DOTALL).group(1)
    text = re.sub(r"\{\{.*?\}\}", "x", text)
    is_valid_group(yaml.safe_load(text))


def test_sec_the_policy_that_a_page_shows_is_the_one_of_the_chart():
    def policy(documents) -> dict:
        (found,) = [d for d in documents if d and d["kind"] == "NetworkPolicy" and d["metadata"]["name"] == "ramen-groups"]
        return found

    shown = policy(document for _, document in manifests())
    ours = policy(yaml.safe_load_all(template(CHART, {}).stdout))
    assert shown["spec"] == ours["spec"]


def test_values_in_the_pages_are_taken_by_the_chart():
    shown = {name: text for name, text in blocks("yaml").items() if name.endswith(":values.yaml")}
    assert shown
    for name, text in shown.items():
        done = template(CHART, yaml.safe_load(text))
        assert done.returncode == 0, (name, done.stderr)


def test_values_that_the_pages_name_exist():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for page in PAGES:
        for name in re.findall(r"`((?:artifacts|gateway|persistence|scratch|operator|networkPolicy|metrics|rbac|worker\.image)\.[\w.]+)`", page.read_text()):
            node = values
            for part in name.split("."):
                assert part in node, f"{page.name}: {name}"
                node = node[part]


def test_shell_in_the_pages_can_be_read_by_a_shell():
    for name, text in blocks("sh").items():
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stderr)


FAKE = """#!{python}
import json, os, re, sys
place = {place!r}
steps = json.load(open(place + "/steps.json"))
at = int(open(place + "/at").read())
words = sys.argv[1:]
open(place + "/calls", "a").write(" ".join(words) + "\\n")
step = steps[min(at, len(steps) - 1)]
if words[0] == "wait":
    open(place + "/at", "w").write(str(at + 1))
    field, wanted = re.fullmatch(r"--for=jsonpath={{.status.revision.(\\w+)}}=(.*)", words[-1]).groups()
    sys.exit(0 if step.get(field) == wanted else 1)
if words[0] == "get":
    print(step["deployed"] if "Deployed" in words[-1] else "NameMismatch: tools/calc : why")
"""


def waiting(tmp_path: Path, steps: list[dict], command: list[str], **variables: str) -> subprocess.CompletedProcess:
    """Runs a command beside ramen-wait.sh, with a kubectl that tells of these steps one after the other."""
    (text,) = [text for name, text in blocks("sh").items() if name.endswith(":ramen-wait.sh")]
    (tmp_path / "ramen-wait.sh").write_text(text)
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    (tmp_path / "at").write_text("0")
    fake = tmp_path / "kubectl"
    fake.write_text(FAKE.format(python=sys.executable, place=str(tmp_path)))
    fake.chmod(0o755)
    env = {**os.environ, **variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60, cwd=tmp_path)


def asked(tmp_path: Path) -> str:
    return (tmp_path / "calls").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("steps", "code", "says"),
    [
        ([{"attempted": "m@sha1:1"}, {"deployed": "Unknown"}, {"serving": "m@sha1:1", "deployed": "True"}], 0, ""),
        ([{"attempted": "m@sha1:1"}, {"serving": "m@sha1:0", "deployed": "False"}], 1, "was refused"),
        ([{"attempted": "m@sha1:0", "deployed": "True"}], 1, "has not seen"),
        ([{"attempted": "m@sha1:1"}, {"deployed": "Unknown"}], 1, "not live"),
    ],
    ids=["live", "refused", "unseen", "slow"],
)
def test_the_script_that_pipelines_wait_with(tmp_path, steps, code, says):
    command = ["sh", "ramen-wait.sh", "team-a", "library", "m@sha1:1", "1" if says == "not live" else "30"]
    done = waiting(tmp_path, steps, command)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    if code:
        assert "NameMismatch" in done.stderr
    assert asked(tmp_path).startswith("annotate -n team-a mcpgroup/library --overwrite ramen.dev/requested-at=m@sha1:1 ")


def pipelines() -> dict[str, dict]:
    all_blocks = blocks("yaml")
    ends = {"github": ":.github/workflows/live.yaml", "gitlab": ":.gitlab-ci.yml"}
    return {kind: yaml.safe_load(text) for kind, end in ends.items() for name, text in all_blocks.items() if name.endswith(end)}


def test_the_pipelines_have_the_shape_that_their_hosts_take():
    github, gitlab = pipelines()["github"], pipelines()["gitlab"]
    # YAML reads the key `on` as a truth.
    assert set(github) == {"name", True, "concurrency", "jobs"} and github[True] == {"push": {"branches": ["main"]}}
    for job in github["jobs"].values():
        assert job["runs-on"] and all(("uses" in step) != ("run" in step) for step in job["steps"])
        # Text of an event never stands in a script: it comes by variables.
        assert not [step for step in job["steps"] if "${{" in step.get("run", "")]
    for job in gitlab.values():
        assert {"image", "rules", "resource_group", "script"} == set(job)
        assert all(isinstance(line, str) for line in job["script"])


@pytest.mark.parametrize("host", ["github", "gitlab"])
@pytest.mark.parametrize("live", [True, False])
def test_the_pipelines_wait_for_the_commit_that_was_pushed(tmp_path, host, live):
    sha = "0123456789abcdef0123456789abcdef01234567"
    pushed = f"main@sha1:{sha}"
    if host == "github":
        steps = pipelines()["github"]["jobs"]["live"]["steps"]
        script = "\n".join(step["run"] for step in steps if "run" in step)
    else:
        script = "\n".join(pipelines()["gitlab"]["live"]["script"])
    (tmp_path / "env").touch()
    variables = {
        "GITHUB_REF_NAME": "main", "GITHUB_SHA": sha, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": sha,
        "RUNNER_TEMP": str(tmp_path), "GITHUB_ENV": str(tmp_path / "env"), "KUBECONFIG_TEXT": "apiVersion: v1",
    }
    serving = {"serving": pushed, "deployed": "True"} if live else {"serving": "main@sha1:0", "deployed": "False"}
    done = waiting(tmp_path, [{"attempted": pushed}, serving], ["bash", "-e", "-c", script], **variables)
    assert (done.returncode == 0) is live, done.stderr
    assert f"requested-at={pushed} " in asked(tmp_path)
    if host == "github":
        assert (tmp_path / "env").read_text() == f"KUBECONFIG={tmp_path}/kubeconfig\n"
        assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600


def test_the_script_that_signs_a_hook(tmp_path):
    (text,) = [text for name, text in blocks("sh").items() if name.endswith(":notify.sh")]
    (tmp_path / "notify.sh").write_text(text)
    (tmp_path / "secret").write_text("the-secret\n")
    (tmp_path / "curl").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{tmp_path}/words\n")
    (tmp_path / "curl").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(tmp_path / "notify.sh"), "https://hooks.example/v1/hooks/ci/team-a/library", str(tmp_path / "secret")]
    subprocess.run(command, check=True, env=env, timeout=20)
    words = (tmp_path / "words").read_text().splitlines()
    headers = dict(word.split(": ") for word in words if ": " in word)
    signed = hmac.new(b"the-secret", f"{headers['X-Timestamp']}.".encode(), "sha256").hexdigest()
    assert headers["X-Signature"] == f"sha256={signed}"
    assert words[-1].endswith("/v1/hooks/ci/team-a/library")

"""The table of docs/reference/protocol.md, out of what the conformance suite said."""

import json
import re
from pathlib import Path

REVISIONS = ["2025-11-25", "2026-07-28"]
# What the scenarios of the suite are about, by how their names begin; the first that fits counts.
AREAS = [
    ("Lifecycle", ("server-initialize", "initialize", "server-stateless", "ping", "request-metadata", "caching", "server-session")),
    ("Tools", ("tools-", "tools_", "json-schema", "completion-")),
    ("Resources", ("resources-", "sep-2164")),
    ("Prompts", ("prompts-",)),
    ("Streams and logs", ("server-sse", "sse-", "logging-")),
    ("What a server asks of the client", ("elicitation", "input-required", "sep-2322")),
    ("HTTP", ("dns-", "http-")),
    ("Sign-in", ("auth/",)),
    ("Extensions", ("tasks-", "sep-2640")),
]
HEAD = """# What of the protocol is served

Written by the conformance suite's results (`make protocol`): `@modelcontextprotocol/conformance` {version}, of which every scenario that a
revision requires is run against the gateway and against our client in `make test`, with no exceptions but those named here
(`e2e/conformance/`). The revisions of 2025-03-26 and 2025-06-18 are served, too; the suite has no lists for them.

An empty field: the scenario is not one of that revision. Numbers: so many of the scenario's checks pass.
"""
# What no revision requires, and is not served or not done.
NOT_REQUIRED = [
    ("tasks-", "an extension that is not served"),
    ("sep-2640", "an extension that is not served"),
    ("auth/", "an extension that is not done"),
    ("json-schema-2020-12", "not required; the contract of group repos has a form of its own for inputs"),
    ("server-sse-polling", "not required; sessionless: no stream is taken up again"),
]


def results(folder):
    """`{scenario: [check]}` of one run of the suite."""
    found = {}
    for path in sorted(Path(folder).rglob("checks.json")):
        name = str(path.parent.relative_to(folder)).removeprefix("server-")
        found[re.sub(r"-\d{4}-\d\d-\d\dT[-\dZ]+$", "", name)] = json.loads(path.read_text())
    return found


def reasons(baseline):
    """`{scenario: reason}` of a list of expected failures."""
    entries = re.findall(r"^- ([^\s:]+)(?::\S+)?\s+# (.*)$", baseline.read_text(), re.MULTILINE)
    return {scenario: reason.strip() for scenario, reason in reversed(entries)}


def cell(checks):
    """Whether all is well; that the messages are well-formed is a check of every scenario, and says nothing of this one."""
    counted = [check["status"] for check in checks
               if check["status"] not in ("INFO", "SKIPPED") and check["id"] != "wire-schema-valid"]
    good = counted.count("SUCCESS")
    if good == len(counted):
        return "yes"
    return f"{good} of {len(counted)}" if good else "no"


def remark(scenario, cells, said):
    if all(cell in ("", "yes") for cell in cells):
        return ""
    return "; ".join(sorted(said)) or next(
        (why for start, why in NOT_REQUIRED if scenario.startswith(start)), "")


def area(scenario):
    return next((name for name, starts in AREAS if scenario.startswith(starts)), "Other")


def render(version, runs, why):
    """`runs` is `{"server" | "client": {revision: results}}`, `why` is `{revision: {scenario: reason}}`."""
    text = [HEAD.format(version=version)]
    for side, title in (("server", "Server: the gateway"), ("client", "Client: `ramen-client`")):
        scenarios = {name for of_revision in runs[side].values() for name in of_revision}
        text.append(f"\n## {title}\n")
        for name in [*(name for name, _ in AREAS), "Other"]:
            rows = sorted(scenario for scenario in scenarios if area(scenario) == name)
            if not rows:
                continue
            text.append(f"\n### {name}\n\n| scenario | {' | '.join(REVISIONS)} | |\n|---|---|---|---|\n")
            for scenario in rows:
                of = [runs[side][revision].get(scenario) for revision in REVISIONS]
                cells = ["" if checks is None else cell(checks) for checks in of]
                said = {why[revision].get(scenario) for revision in REVISIONS} - {None} if side == "server" else set()
                text.append(f"| `{scenario}` | {' | '.join(cells)} | {remark(scenario, cells, said)} |\n")
    return "".join(text)

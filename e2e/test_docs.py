"""Every example of the documents is run, or at least is what it says it is."""

import re
import subprocess

import pytest

import documents
import programs

ROOT = programs.ROOT
# The documents a person follows step by step: nothing in them may go untested.
FOLLOWED = [path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
                              *sorted((ROOT / "docs" / "connect").glob("*.md"))]]
SHOWN = sorted([*(ROOT / "docs" / "reference").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md"),
                *(ROOT / "examples").glob("*/README.md"), *ROOT.glob("*/README.md"), ROOT / "SECURITY.md"])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name(path):
    return str(path.relative_to(ROOT))


# A page may have examples that are compiled.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", FOLLOWED, ids=name)
def test_every_example_runs(path, folder):
    runner = documents.Runner(folder)
    try:
        for block in documents.on_free_ports(documents.blocks(path)):
            documents.parses(block)
            if block.language in ("sh", "bash", "console", "shell") and "make" not in block.options:
                assert "test" in block.options, f"line {block.line}: this example is not tested"
            assert block.language, f"line {block.line}: a block says what it is"
            runner.run(block)
    finally:
        runner.end()


@pytest.mark.parametrize("path", SHOWN, ids=name)
def test_every_example_is_what_it_says_it_is(path):
    for block in documents.blocks(path):
        try:
            documents.parses(block)
        except (ValueError, SyntaxError) as error:
            pytest.fail(f"{name(path)}:{block.line}: {error}")
        if block.language in ("sh", "bash", "console", "shell"):
            for subcommand in re.findall(r"^(?:\$ )?ramen ([a-z]+)", block.text, re.MULTILINE):
                done = subprocess.run([programs.BIN / "ramen", subcommand, "--help"], env=programs.environment(),
                                      capture_output=True, timeout=60)
                assert done.returncode == 0, f"{name(path)}:{block.line}: there is no `ramen {subcommand}`"


@pytest.mark.parametrize("path", [p for p in [*FOLLOWED, *SHOWN] if "kind: McpGroup" in p.read_text()], ids=name)
def test_every_mcp_group_that_is_shown_is_taken(path, folder):
    for block in documents.blocks(path):
        if block.language != "yaml" or "kind: McpGroup" not in block.text:
            continue
        # Nobody listens there: the document is judged, nothing is fetched.
        text = re.sub(r"(url: )(https|ssh|file)://[^/\s]*", r"\1http://127.0.0.1:1", block.text)
        (folder / "mcpgroup.yaml").write_text(text)
        runner = documents.Runner(folder) if not (folder / "work").exists() else runner
        try:
            runner.start(f"ramen up -f {folder / 'mcpgroup.yaml'}", "…SourceUnreachable…", block)
        finally:
            runner.end()
            runner.background.clear()


@pytest.mark.parametrize("path", [*FOLLOWED, *SHOWN], ids=name)
def test_every_link_within_the_repository_leads_somewhere(path):
    for target in LINK.findall(path.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (path.parent / target).exists(), f"{name(path)} links to {target}"


@pytest.mark.parametrize("path", FOLLOWED, ids=name)
def test_every_make_target_that_is_named_exists(path):
    for block in documents.blocks(path):
        if "make" in block.options:
            for target in re.findall(r"^make (\S+)", block.text, re.MULTILINE):
                done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, done.stderr


def test_no_file_names_a_machine_or_a_registry_host():
    """What works only here, or names where packages come from, does not belong into the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    hosts = "|".join(re.escape(host) for host in (
        "pypi." + "org", "pythonhosted." + "org", "crates." + "io/", "registry.npm" + "js.org", "proxy.golang." + "org",
        "deb.debian." + "org"))
    bad = re.compile(rf"({hosts})|(?<![\w.])/(?:root|home/\w+)/(?!\.\.\.)")
    found = []
    for path in filter(None, listed.split("\0")):
        if path.endswith("Cargo.lock") or path.startswith("fuzz/corpus/") or not (ROOT / path).is_file():
            continue
        for number, line in enumerate((ROOT / path).read_text(errors="ignore").splitlines(), 1):
            if match := bad.search(line):
                found.append(f"{path}:{number}: {match.group()}")
    assert not found, "\n".join(found)

"""Reads fenced blocks of our documents and runs the ones that say so.

- ```console test [exit=N|exit=any]```: lines that begin with `$ ` are run, what follows is the expected output, in which
  `…` stands for anything. A command that ends in ` &` runs on until the document ends; its expected output is awaited.
  With `needs=npm|go|rust|VENV` these find what is pinned in e2e/foreign, as if the person had installed it there.
- ```LANGUAGE file=PATH```: the block is written to that file.
- ```sh make```: each `make TARGET` must be a target of the Makefile.
- A port of 127.0.0.1 that a page names is another one when it is run, which nobody has.
- ```text``` and ```markdown```: pictures and quotations. JSON, YAML and Python blocks without `file=` must parse.
"""

import ast
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

import foreign
import programs

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
                   re.MULTILINE | re.DOTALL)
PORT = re.compile(r"127\.0\.0\.1:(\d{4,5})\b")


@dataclass
class Block:
    line: int
    language: str
    options: dict
    text: str


def blocks(path):
    source = path.read_text()
    found = []
    for match in FENCE.finditer(source):
        words = match["info"].split()
        options = dict((word.split("=", 1) + [""])[:2] for word in words[1:])
        line = source.count("\n", 0, match.start()) + 1
        indent = len(match["indent"])
        text = "".join(text[indent:] if text[:indent].isspace() else text
                       for text in match["text"].splitlines(keepends=True))
        found.append(Block(line, words[0] if words else "", options, text))
    return found


def free_ports(count):
    """Ports that nobody has, below those that the system gives to whoever asks for any."""
    found = []
    for port in random.sample(range(20_000, 32_000), 2_000):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    raise AssertionError(f"there are no {count} free ports")


def on_free_ports(blocks):
    """The same blocks, where each port of this machine that they name is one that nobody has."""
    named = sorted({port for block in blocks for port in PORT.findall(block.text)})
    if not named:
        return blocks
    free = dict(zip(named, map(str, free_ports(len(named))), strict=True))
    port = re.compile(rf"\b({'|'.join(named)})\b")
    return [replace(block, text=port.sub(lambda found: free[found[0]], block.text)) for block in blocks]


def commands(text):
    """`(command, expected output)` of a console block."""
    found = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append([line[2:].rstrip("\n"), ""])
        elif found and found[-1][0].endswith("\\"):
            found[-1][0] = found[-1][0][:-1] + line.rstrip("\n")
        else:
            assert found, f"a console block starts with a command, not with {line!r}"
            found[-1][1] += line
    return found


def pattern(expected):
    return re.compile("".join(r"[\s\S]*" if part == "…" else re.escape(part)
                              for part in re.split("(…)", expected.strip())))


class Runner:
    """Runs the blocks of one document, in order, in one folder."""

    def __init__(self, folder):
        self.folder = folder / "work"
        self.folder.mkdir()
        self.cwd = self.folder
        self.exports = folder / "exports"
        self.background = []
        path = os.pathsep.join([str(programs.BIN), str(programs.PYTHON_BIN), os.environ["PATH"]])
        self.env = programs.environment(
            PATH=path, HOME=str(folder), RAMEN_STATE_DIR=str(folder / "state"), LC_ALL="C.UTF-8",
            GIT_CONFIG_GLOBAL=os.devnull, GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@example.com",
            GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t@example.com", UV_CACHE_DIR=uv_cache())

    def exported(self):
        return f". '{self.exports}'\n" if self.exports.exists() else ""

    def needed(self, block):
        """Lines that a shell runs first, so that it finds what the block needs."""
        needs = block.options.get("needs")
        if not needs:
            return ""
        path, settings = foreign.environment(needs, self.cwd)
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
        return "".join(lines) + (f"PATH={shlex.quote(path)}:$PATH\n" if path else "")

    def run(self, block):
        if "file" in block.options:
            path = self.cwd / block.options["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "console" and "test" in block.options:
            for command, expected in commands(block.text):
                if command.endswith(" &"):
                    self.start(command[:-2], expected, block)
                else:
                    self.command(command, expected, block)

    def command(self, command, expected, block):
        where = self.folder.parent / "cwd"
        # What is exported stays, as in a shell.
        script = (f"set -euo pipefail\n{self.exported()}{self.needed(block)}{command}\npwd >'{where}'\n"
                  f"export -p | grep -v '^declare -x PATH=' >'{self.exports}'\n")
        done = subprocess.run(["bash", "-c", script], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=170)
        wanted = block.options.get("exit", "0")
        shown = f"line {block.line}: $ {command}\n{done.stdout}\n{self.logs()}"
        assert wanted == "any" or done.returncode == int(wanted), f"exit {done.returncode}, not {wanted}: {shown}"
        assert pattern(expected).fullmatch(done.stdout.strip()), f"expected\n{expected}\nbut got: {shown}"
        if done.returncode == 0:
            self.cwd = Path(where.read_text().strip())

    def start(self, command, expected, block):
        log = tempfile.NamedTemporaryFile(dir=self.folder.parent, suffix=".log", delete=False)
        process = subprocess.Popen(["bash", "-c", f"{self.exported()}exec {command}"], cwd=self.cwd, env=self.env,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        self.background.append((process, Path(log.name)))
        try:
            programs.until(lambda: pattern(expected).search(Path(log.name).read_text()),
                           f"line {block.line}: {command} prints {expected!r}", lambda: process.poll() is None)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self):
        return "\n".join(f"--- {path.name} ---\n{path.read_text()[-3000:]}" for _, path in self.background)

    def end(self):
        # Whoever came later may hold connections to those before it; none is left, whatever another one's end was.
        ended = []
        for process, path in reversed(self.background):
            process.send_signal(signal.SIGTERM)
            ended.append((programs.stop(process), path))
        for code, path in ended:
            assert code in (0, 130, 143, -signal.SIGTERM), f"ended with {code}:\n{path.read_text()[-3000:]}"


def uv_cache():
    """The person's own cache of wheels, although HOME is another one here."""
    asked = subprocess.run([os.environ.get("RAMEN_UV", str(programs.PYTHON_BIN / "uv")), "cache", "dir"],
                           capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def parses(block):
    """A block that is only shown must at least be what it says it is."""
    if block.language == "json":
        json.loads(block.text)
    elif block.language in ("yaml", "yml"):
        list(yaml.safe_load_all(block.text))
    elif block.language in ("python", "py"):
        ast.parse(block.text)

"""Programs that we did not write: where they come from, and how each is started.

All are pinned in e2e/foreign and lie in the cache. What cannot be had on this machine skips its tests, and the reason is told.
"""

import functools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import programs

SOURCES = programs.ROOT / "e2e" / "foreign"


@functools.cache
def installed(*command):
    """The folder that an installer prints, or why there is none."""
    done = subprocess.run([programs.ROOT / "scripts" / command[0], *command[1:]], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=900)
    return done.stdout.strip() or None, (done.stderr.strip().splitlines() or ["no reason was given"])[-1]


def folder_of(*command):
    folder, reason = installed(*command)
    return folder or pytest.skip(reason)


def node(script, *args):
    """A script of e2e/foreign/node; it finds its packages through a link beside it."""
    npm = folder_of("npm.sh")
    scripts = programs.scratch() / "node"
    if not scripts.exists():
        scripts.mkdir()
        for path in SOURCES.glob("node/*.mjs"):
            (scripts / path.name).write_text(path.read_text())
        (scripts / "node_modules").symlink_to(f"{npm}/node_modules")
    return [f"{npm}/bin/node", str(scripts / script), *args]


def npm_program(package, script, *args):
    """A program of a package from npm."""
    npm = folder_of("npm.sh")
    return [f"{npm}/bin/node", f"{npm}/node_modules/{package}/{script}", *args]


def python(venv, *args):
    """The Python of a venv of its own."""
    return [f"{folder_of('venv.sh', venv)}/bin/python", *args]


def go(program):
    """A program of e2e/foreign/go."""
    return [f"{folder_of('go-foreign.sh')}/{program}"]


def rust(*args):
    """The program of e2e/foreign/rust."""
    return [f"{folder_of('rust-foreign.sh')}/ramen-foreign", *args]


def environment(needs, folder):
    """What a person has in `folder` who installed one of the SDKs there: what comes first on the PATH, and other settings."""
    home, cache = Path.home(), Path(os.environ.get("RAMEN_CACHE") or Path.home() / ".cache" / "ramen")
    if needs == "npm":
        npm = folder_of("npm.sh")
        if not (folder / "node_modules").exists():
            (folder / "node_modules").symlink_to(f"{npm}/node_modules")
        return f"{npm}/bin", {}
    if needs == "go":
        folder_of("go-foreign.sh")
        for name in ("go.mod", "go.sum"):
            (folder / name).write_text((SOURCES / "go" / name).read_text())
        return "", {"GOCACHE": os.environ.get("GOCACHE", f"{cache}/go/build"), "GOFLAGS": "-modcacherw", "GOWORK": "off",
                    "GOMODCACHE": os.environ.get("GOMODCACHE", f"{cache}/go/modules")}
    if needs == "rust":
        target = Path(folder_of("rust-foreign.sh")).parent
        for name in ("Cargo.toml", "Cargo.lock"):
            text = (SOURCES / "rust" / name).read_text()
            # Dependencies that are built already are used; the program must not take the place of the other.
            (folder / name).write_text(text.replace('name = "ramen-foreign"', 'name = "example"'))
        toolchain = re.search('channel = "(.*)"', (programs.ROOT / "rust-toolchain.toml").read_text())[1]
        return "", {"CARGO_TARGET_DIR": str(target), "CARGO_HOME": os.environ.get("CARGO_HOME", f"{home}/.cargo"),
                    "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", f"{home}/.rustup"),
                    "RUSTUP_TOOLCHAIN": os.environ.get("RUSTUP_TOOLCHAIN", toolchain)}
    return f"{folder_of('venv.sh', needs)}/bin", {}


def pinned(package):
    """The version of a package from npm."""
    return json.loads((SOURCES / "node" / "package.json").read_text())["dependencies"][package]

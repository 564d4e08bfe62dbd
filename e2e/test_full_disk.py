"""A requirement for which the disk has no room, as whoever runs `ramen up` and its clients see it (REQ11)."""

import json
import os
import shutil
import subprocess
import zipfile
from contextlib import contextmanager

import pytest

import groups
import programs
from clients import over_http
from up import Up


def heavy_wheel(folder):
    """The library `heavy`, of six megabytes that do not compress."""
    folder.mkdir()
    info = "heavy-1.0.dist-info"
    files = {
        "heavy.py": "WEIGHT = 6\n", "heavy.bin": os.urandom(6 << 20),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: heavy\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "heavy-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return folder


@contextmanager
def small_disk(at, size):
    """A disk of that size; gives what makes it larger."""
    at.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", at], check=True)
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def until(up, told):
    """The first status that is so."""
    for line in up.process.stdout:
        status = json.loads(line)
        if told(status):
            return status
    raise AssertionError("`ramen up` has ended")


@pytest.mark.skipif(not shutil.which("mount"), reason="there is no mount")
def test_req11_a_full_disk_is_called_so_what_serves_goes_on_and_room_heals_it(folder):
    wheels = heavy_wheel(folder / "wheels")
    group = folder / "light-group"
    groups.tool(group, "light", "def light():\n    return 'light'\n")
    with small_disk(folder / "state" / "store", "3m") as grow:
        up = Up(folder, group, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))

        def call(tool):
            async def body(client):
                return await client.call_tool(tool, {})

            return over_http(up.url, up.key, "legacy", body).content[0].text

        try:
            (up.repo / "mcp" / "requirements.txt").write_text("heavy\n")
            groups.tool(up.repo, "weigh", "import heavy\ndef weigh():\n    return heavy.WEIGHT\n")
            full = until(up, lambda status: any(error["reason"] == "DiskFull" for error in status["errors"]))
            assert full["fixes"]["DiskFull"] and "next try in" in full["message"], full
            assert call("light") == "light"
            grow("64m")
            until(up, lambda status: status["ready"] and status["tools"] == 2)
            assert call("weigh") == "6"
        finally:
            up.stop()

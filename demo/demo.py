"""The demo: a git repository of Python answers MCP calls, and follows every push.

Run it with `make demo`. It needs no input, waits on conditions with time limits, cleans up after itself, and exits 0, or
1 with the reason.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
from mcp import Client, StdioServerParameters

import git_http

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("RAMEN_BIN_DIR", ROOT / "target" / "debug"))
PATIENCE = 180  # seconds until a condition that does not come ends the demo; the first install may be slow
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
CALL = {"var1": 6, "var2": 7, "func": "multiply"}

GROUP = """\
apiVersion: ramen.dev/v1alpha1
kind: McpGroup
metadata:
  name: demo
spec:
  source:
    url: {url}
    ref:
      branch: main
    interval: 1m
  network:
    allowedCIDRs: ["127.0.0.0/8"]
"""

NEW_TOOL = {
    "mcp/requirements.txt": "humanize==4.12.3\n",
    "mcp/tools/demo_words_tool/demo_words_tool.json": json.dumps({
        "type": "tool", "name": "demo_words_tool", "description": "Say a big number in words.",
        "callable": "words_func", "input": {"number": {"type": "integer", "description": "the number"}},
        "output": {"type": "string"}}, indent=2) + "\n",
    "mcp/tools/demo_words_tool/demo_words_tool.py":
        "import humanize\n\n\ndef words_func(number):\n    return humanize.intword(number)\n",
}


class Failed(Exception):
    """Why the demo ends early."""


def say(text, shade=None):
    print(f"\033[{shade}m{text}\033[0m" if COLOUR and shade else text, flush=True)


def step(text):
    say(f"\n== {text}", 1)


def run(*command, cwd=None, env=None):
    done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Up:
    """`ramen up`, and what it says: one JSON object a line."""

    def __init__(self, folder, env):
        self.log = (folder / "up.log").open("w+")
        self.process = subprocess.Popen([BIN / "ramen", "up", "-f", folder / "mcpgroup.yaml", "--output", "json"], env=env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.status, self.changed = {}, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.status = json.loads(line)
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def until(self, what, condition):
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while not (self.status and condition(self.status)):
                left = deadline - time.monotonic()
                if self.process.poll() is not None:
                    raise Failed(f"`ramen up` ended ({self.process.returncode}) before: {what}\n{self.words()}")
                if left <= 0:
                    raise Failed(f"not within {PATIENCE} s: {what}\nlast status: {json.dumps(self.status)}\n{self.words()}")
                self.changed.wait(min(left, 1))
            return dict(self.status)

    def words(self):
        self.log.flush()
        return Path(self.log.name).read_text()[-2000:]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise Failed("`ramen up` did not end within 60 s of SIGTERM") from None
        self.log.close()
        if self.process.returncode != 0:
            raise Failed(f"`ramen up` ended with {self.process.returncode}")


class Demo:
    def __init__(self, folder):
        self.folder = folder
        self.state = folder / "state"
        self.work, self.bare = folder / "work", folder / "repos" / "demo.git"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("RAMEN_") or k in ("RAMEN_UV", "RAMEN_HOST_DIR")}
        self.env.setdefault("RAMEN_UV", str(Path(sys.executable).with_name("uv")))
        self.env.update(RAMEN_STATE_DIR=str(self.state), GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1",
                        GIT_AUTHOR_NAME="Demo", GIT_AUTHOR_EMAIL="demo@example.com", GIT_COMMITTER_NAME="Demo",
                        GIT_COMMITTER_EMAIL="demo@example.com", GIT_TERMINAL_PROMPT="0")
        self.up = self.http = self.channel = None
        self.summary = []

    # -- the repository

    def git(self, *args):
        return run("git", *args, cwd=self.work, env=self.env)

    def make_repository(self):
        step("A bare repository of examples/demo-group, over smart HTTP on loopback")
        shutil.copytree(ROOT / "examples" / "demo-group", self.work)
        self.bare.parent.mkdir()
        run("git", "init", "-q", "--bare", "-b", "main", self.bare, env=self.env)
        run("git", "-C", self.bare, "config", "http.receivepack", "true", env=self.env)
        hook = self.bare / "hooks" / "post-receive"
        hook.write_text(f"#!/bin/sh\nexec '{BIN / 'ramen'}' poke demo --state-dir '{self.state}' >/dev/null 2>&1 || true\n")
        hook.chmod(0o755)
        self.http = git_http.server(self.bare.parent)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        url = "http://%s:%d/demo.git" % self.http.server_address
        self.git("init", "-q", "-b", "main")
        self.git("remote", "add", "origin", url)
        self.push("The demo group")
        say(f"   {url}")
        return url

    def push(self, message):
        """Commits everything and pushes it; when the push began, and the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        commit = self.git("rev-parse", "HEAD").strip()
        began = time.monotonic()
        self.git("push", "-q", "origin", "main")
        return began, commit

    # -- callers

    def call(self, tool, arguments):
        """Plain gRPC without any file of ours: the message is field 1, length-delimited."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": {"name": tool, "arguments": arguments}}).encode()
        size, head = len(body), b"\x0a"
        while size > 127:
            head, size = head + bytes([size & 127 | 128]), size >> 7
        unary = self.channel.unary_unary("/ramen.v1.Mcp/Call", request_serializer=None, response_deserializer=None)
        reply = unary(head + bytes([size]) + body, metadata=(("authorization", f"Bearer {self.key}"),), timeout=60)
        start = next(i for i in range(1, len(reply)) if reply[i] < 128) + 1  # behind the tag and the length
        return json.loads(reply[start:])

    def text(self, tool, arguments):
        answer = self.call(tool, arguments)
        return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["message"]

    def until_answer(self, tool, arguments, want):
        deadline = time.monotonic() + PATIENCE
        while (got := self.text(tool, arguments)) != want:
            if time.monotonic() > deadline:
                raise Failed(f"{tool} still answers {got!r} instead of {want!r}\n{json.dumps(self.up.status)}")
            if self.up.process.poll() is not None:
                raise Failed(f"`ramen up` ended\n{self.up.words()}")
            time.sleep(0.005)  # a pause between two looks, not a wait for a time
        return got

    async def through_bridge(self):
        """The official client, which knows nothing of gRPC, on `ramen bridge`."""
        server = StdioServerParameters(command=str(BIN / "ramen"), args=["bridge", "--group", "demo"], env=self.env)
        async with Client(server) as client:
            tools = await client.list_tools()
            result = await client.call_tool("demo_calculator_tool", CALL)
            resource = await client.read_resource("demo://readme")
            prompt = await client.get_prompt("demo_explain_prompt", {"expression": "6 * 7", "reader": "a child"})
        return [t.name for t in tools.tools], result.content[0].text, resource.contents[0].text, prompt.messages[0].content.text

    def expect(self, what, got, want):
        if got != want:
            raise Failed(f"{what}: got {got!r} instead of {want!r}")
        say(f"   {what}: {got}", 32)

    # -- the story

    def play(self):
        url = self.make_repository()

        step("ramen up on it")
        (self.folder / "mcpgroup.yaml").write_text(GROUP.format(url=url))
        began = time.monotonic()
        self.up = Up(self.folder, self.env)
        status = self.up.until("the group is ready", lambda s: s["ready"] and s["address"])
        self.note("from `ramen up` to ready", began)
        say(f"   {status['revision']} serves {status['tools']} tool at {status['address']}")
        self.key = next((self.state / "groups").glob("*/keys/*")).read_text().strip()
        self.channel = grpc.insecure_channel(status["address"])

        step("Calls: plain gRPC, `ramen call`, and the official MCP client through `ramen bridge`")
        self.expect("gRPC, 6 * 7", self.text("demo_calculator_tool", CALL), "42")
        self.expect("gRPC, 1 / 0", self.text("demo_calculator_tool", {"var1": 1, "var2": 0, "func": "divide"}),
                    "ZeroDivisionError: division by zero")
        called = run(BIN / "ramen", "call", "demo_calculator_tool", "var1=6", "var2=7", "func=multiply", env=self.env)
        self.expect("ramen call, 6 * 7", called.strip(), "42")
        tools, answer, readme, prompt = asyncio.run(asyncio.wait_for(self.through_bridge(), PATIENCE))
        self.expect("bridge, tools", tools, ["demo_calculator_tool"])
        self.expect("bridge, 6 * 7", answer, "42")
        self.expect("bridge, demo://readme", readme.splitlines()[0], "# Demo group")
        self.expect("bridge, the prompt holds its argument", "`6 * 7`" in prompt, True)

        step("A push of code")
        utils = self.work / "mcp/tools/demo_calculator_tool/utils/demo_calculator_tool_utils.py"
        good = utils.read_text()
        tool = self.work / "mcp/tools/demo_calculator_tool/demo_calculator_tool.py"
        tool.write_text(tool.read_text() + "\n\n_plain = calculator_func\n\n\ndef calculator_func(var1, var2, func):\n"
                        "    result = _plain(var1, var2, func)\n    return 'forty-two' if result == 42 else result\n")
        began, _ = self.push("Say it in words")
        self.expect("the new answer", self.until_answer("demo_calculator_tool", CALL, "forty-two"), "forty-two")
        self.note("from the push of code to the new answer", began)

        step("A push of requirements: a package from the index, and a tool that uses it")
        for name, text in NEW_TOOL.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text(text)
        began, commit = self.push("Numbers in words")
        self.up.until("the new requirements serve or are refused",
                      lambda s: commit in (s["attempted"] or "") and (commit in (s["revision"] or "") or s["errors"]))
        if self.up.status["errors"]:
            raise Failed(f"the requirements were refused: {json.dumps(self.up.status['errors'], indent=1)}")
        self.expect("the new tool, 1200000000", self.until_answer("demo_words_tool", {"number": 1_200_000_000}, "1.2 billion"), "1.2 billion")
        self.note("from the push of requirements to the new tool", began)

        step("A push that breaks the calculator")
        utils.write_text(good.replace("def ", "deff ", 1))
        before = self.up.status["revision"]
        began, broken = self.push("Oops")
        status = self.up.until("the broken revision was refused", lambda s: broken in (s["attempted"] or "") and s["errors"])
        self.note("from the broken push to its errors list", began)
        for error in status["errors"]:
            say(f"   {error.get('path') or error.get('package') or 'group'}: {error['reason']}: {error['message']}", 31)
            say(f"     fix: {status['fixes'][error['reason']]}")
        self.expect("the revision that serves is still the last good one", self.up.status["revision"], before)
        self.expect("and it still answers", self.text("demo_calculator_tool", CALL), "forty-two")

        step("A push that mends it")
        utils.write_text(good)
        began, commit = self.push("Mended")
        status = self.up.until("the mended revision serves", lambda s: commit in (s["revision"] or ""))
        self.expect("errors", status["errors"], [])
        self.note("from the push that mends it to its service", began)

    def note(self, what, began):
        seconds = time.monotonic() - began
        self.summary.append((what, seconds))
        say(f"   {what}: {seconds:.2f} s", 36)

    def close(self):
        if self.channel:
            self.channel.close()
        try:
            if self.up:
                self.up.stop()
        finally:
            if self.http:
                self.http.shutdown()
                self.http.server_close()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ramen-demo-") as folder:
        demo = Demo(Path(folder))
        try:
            try:
                demo.play()
            finally:
                demo.close()
        except Failed as failed:
            say(f"\nThe demo failed: {failed}", 31)
            return 1
        except Exception as error:  # whatever it is, a person wants the reason and not a traceback
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            say(f"\nThe demo failed: {type(error).__name__}: {error}", 31)
            return 1
    step("Summary")
    for what, seconds in demo.summary:
        say(f"   {seconds:7.2f} s  {what}")
    say(f"   {time.monotonic() - began:7.2f} s  everything; nothing was left behind", 32)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Group repos that the tests write: one as found in the wild, one of tools that behave in ways a client can see."""

import json
from textwrap import dedent

PICTURE = b"\x89PNG\r\n\x1a\n\x00\xff"


def package(root, kind, name, descriptor, code=None, **files):
    folder = root / "mcp" / f"{kind}s" / name
    folder.mkdir(parents=True)
    descriptor = {"type": kind, "name": name, "description": f"The {name} {kind}.", **descriptor}
    (folder / f"{name}.json").write_text(json.dumps(descriptor))
    if code is not None:
        (folder / f"{name}.py").write_text(dedent(code))
    for path, text in files.items():
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
    return folder


def tool(root, name, code, files=None, /, **input):
    return package(root, "tool", name, {"callable": name, "input": input}, code, **(files or {}))


def resource(root, name, code, mime_type):
    return package(root, "resource", name, {"callable": name, "uri": f"probe://{name}", "mime_type": mime_type}, code)


def probe_group(root):
    """Tools that wait, report, fail and look around; resources of either kind and a prompt."""
    (root / "mcp").mkdir(parents=True)
    (root / "mcp" / "requirements.txt").write_text("")
    string, number = {"type": "string"}, {"type": "number"}
    tool(root, "echo", "def echo(text):\n    return text\n", text=string)
    tool(root, "pause", "import time\ndef pause(seconds):\n    time.sleep(seconds)\n    return 'rested'\n", seconds=number)
    tool(root, "waits", """
        import os, time
        def waits(path):
            while not os.path.exists(path):
                time.sleep(0.01)
            return "rested"
        """, path=string)
    tool(root, "steps", """
        import ramen_runtime
        def steps(count):
            for step in range(int(count)):
                ramen_runtime.progress(step + 1, count, f"step {step + 1}")
            return "done"
        """, count=number)
    tool(root, "paced", """
        import time, ramen_runtime
        def paced(path, count):
            for step in range(1, int(count) + 1):
                ramen_runtime.progress(step, count, f"step {step}")
                until = time.monotonic() + 20
                while open(path).read() != str(step):
                    if time.monotonic() > until:
                        return f"nobody saw step {step}"
                    time.sleep(0.01)
            return "done"
        """, path=string, count=number)
    tool(root, "patient", """
        import time, ramen_runtime
        def patient(path):
            # The interrupt comes 50 ms after `cancelled()` turns true, wherever the code is by then: what is written before it can
            # be cut off in the middle.
            try:
                open(path, "w").write("started")
                while True:
                    time.sleep(0.01)
            except BaseException:
                open(path, "w").write("cancelled" if ramen_runtime.cancelled() else "interrupted")
                raise
        """, path=string)
    terms = {"a": number, "b": number}
    package(root, "tool", "sum", {"callable": "sum_of", "input": terms, "output": number}, "def sum_of(a, b):\n    return a + b\n")
    both = {"type": "object", "properties": {"sum": number, "product": number}, "required": ["sum", "product"]}
    package(root, "tool", "both", {"callable": "both", "input": terms, "output": both},
            "def both(a, b):\n    return {'sum': a + b, 'product': a * b}\n")
    tool(root, "raises", "def raises(text):\n    raise RuntimeError(text)\n", text=string)
    tool(root, "reveal", "def reveal(text):\n    return len(text)\n", text=string)
    tool(root, "leak", "def leak(text):\n    raise ValueError('got ' + text)\n", text=string)
    tool(root, "prints", "import os, subprocess\ndef prints(text):\n    print(text, flush=True)\n"
         "    os.write(1, (text + '-raw\\n').encode())\n    subprocess.run(['echo', text + '-child'])\n    return 'ok'\n", text=string)
    tool(root, "dies", "import os\ndef dies(code):\n    os._exit(int(code))\n", code=number)
    resource(root, "notes", "def notes():\n    return 'Water the plants.'\n", "text/plain")
    resource(root, "picture", f"def picture():\n    return {PICTURE!r}\n", "image/png")
    package(root, "prompt", "greet", {"skill": "SKILL.md", "settings": "settings.json", "input": {"name": string}},
            **{"SKILL.md": "Greet {{name}} in one sentence.\n", "settings.json": "{}"})
    return root


def wild_group(root):
    """What repos in the wild hold beside the contract: it loads as it is."""
    mcp = root / "mcp"
    mcp.mkdir(parents=True)
    (mcp / "requirements.txt").write_text("# nothing yet\n\n")
    (mcp / "env.yaml").write_text(
        "# settings of the tools\nGREETING: hello\nTOKEN: '{{$wild.TOKEN}}'\nABSENT: \"{{$wild.NOT_THERE}}\"\nPORT: 8080\n")
    (mcp / "guardrails.yaml").write_text(
        "engine: policy\nconfig: guardrails\nfail: open\ntimeout_s: 5\ntools:\n  hello: {pre: true, post: false}\n")
    (mcp / "guardrails").mkdir()
    (mcp / "guardrails" / "policy.py").write_text(
        "def pre(tool, args):\n    return True\n\n\ndef post(tool, result):\n    return True\n")
    (mcp / "tests.yaml").write_text(dedent("""
        cases:
          - name: greets
            tool: hello
            args: {name: Ada}
            expect: {text_contains: Ada}
          - name: exactly
            tool: shout
            args: {name: Ada}
            expect:
              exact:
                content: [{type: text, text: ADA!}]
                isError: false
        """))
    junk = {"__pycache__/hello.cpython-39.pyc": b"\x61\x0d\r\n\0junk", "utils/__pycache__/x.pyc": b"\0\1",
            ".DS_Store": b"\0\0\0\1Bud1", "hello.py.swp": b"b0VIM"}
    tool(root, "hello", """
        import os
        from text_helpers import polite
        import consts
        def hello(name):
            return polite(os.environ["GREETING"], name) + consts.END
        """, {**junk, "utils/text_helpers.py": "def polite(a, b):\n    return f'{a} {b}'\n",
              "utils/consts.py": "END = '.'\n", "README.md": "# notes of the author\n"}, name={"type": "string"})
    tool(root, "shout", """
        import consts
        from text_helpers import loud
        def shout(name):
            return loud(name) + consts.END
        """, {"utils/text_helpers.py": "def loud(a):\n    return a.upper()\n", "utils/consts.py": "END = '!'\n"},
         name={"type": "string"})
    tool(root, "environment", """
        import os
        def environment(name):
            return os.environ.get(name, "unset")
        """, name={"type": "string"})
    (mcp / "tools" / "__pycache__").mkdir()
    (mcp / "tools" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"\0")
    (mcp / ".pytest_cache").mkdir()
    (mcp / ".pytest_cache" / "README.md").write_text("x")
    (root / "README.md").write_text("# our group\n")
    (root / "setup.cfg").write_text("[flake8]\n")
    return root

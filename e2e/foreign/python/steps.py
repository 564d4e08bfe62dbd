"""The steps of ../node/steps.mjs for clients in Python. Both lines of the SDK say the same in other names, so fields are
looked up in either spelling."""

import asyncio
import json
import sys
from pathlib import Path

ORDER = json.load(sys.stdin)


def field(thing, snake, camel):
    return getattr(thing, snake) if hasattr(thing, snake) else getattr(thing, camel)


class Steps:
    """`client` has the methods of both SDKs; `failure` is what a refused request raises, `code` finds its code."""

    def __init__(self, client, failure, code):
        self.client, self.failure, self.code = client, failure, code

    async def list(self):
        return sorted(tool.name for tool in (await self.client.list_tools()).tools)

    async def call(self):
        return (await self.client.call_tool("echo", {"text": ORDER["text"]})).content[0].text

    async def error(self):
        result = await self.client.call_tool("raises", {"text": "no such city"})
        return [field(result, "is_error", "isError"), result.content[0].text]

    async def output(self):
        # By now the tools are known with their output schemas, and the SDKs check results against them.
        results = [await self.client.call_tool(name, {"a": 6, "b": 7}) for name in ("sum", "both")]
        structured = [field(result, "structured_content", "structuredContent") for result in results]
        return [*structured, results[0].content[0].text]

    async def unknown(self):
        try:
            await self.client.call_tool("no_such_tool", {})
        except self.failure as error:
            return self.code(error)

    async def progress(self):
        steps, file = [], Path(ORDER["seen"])
        file.write_text("")

        async def seen(progress, total, message):
            steps.append([progress, total, message])
            file.write_text(str(int(progress)))

        result = await self.client.call_tool("paced", {"path": str(file), "count": 3}, progress_callback=seen)
        return [steps, result.content[0].text]

    async def resources(self):
        listed = sorted(str(resource.uri) for resource in (await self.client.list_resources()).resources)
        text = (await self.client.read_resource("probe://notes")).contents[0].text
        return [listed, text, (await self.client.read_resource("probe://picture")).contents[0].blob]

    async def prompts(self):
        listed = [prompt.name for prompt in (await self.client.list_prompts()).prompts]
        got = await self.client.get_prompt("greet", {"name": "Ada"})
        return [listed, got.messages[0].content.text]

    async def cancel(self):
        mark = Path(ORDER["mark"])
        call = asyncio.create_task(self.client.call_tool("patient", {"path": str(mark)}))
        while not (mark.exists() and mark.read_text()):
            await asyncio.sleep(0.01)
        call.cancel()
        (ended,) = await asyncio.gather(call, return_exceptions=True)
        while ORDER["told"] and mark.read_text() != "cancelled":
            await asyncio.sleep(0.01)
        return "given up" if isinstance(ended, BaseException) else "answered"

    async def run(self, version):
        told = {"version": version}
        for name in ("list", "call", "error", "output", "unknown", "progress", "resources", "prompts", "cancel"):
            if name in ORDER["without"]:
                continue
            try:
                told[name] = await getattr(self, name)()
            except Exception as error:
                told[name] = {"failed": f"{type(error).__name__}: {error}"}
        return told

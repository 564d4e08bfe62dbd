"""LangChain: the tools, prompts and resources of a server as LangChain's own objects."""

import asyncio
import json

from langchain_core.tools import ToolException
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient

ORDER = json.loads(input())


async def main():
    seen = []

    async def on_progress(progress, total, message, context):
        seen.append([progress, total, message])
        with open(ORDER["seen"], "w") as file:
            file.write(str(int(progress)))

    if "url" in ORDER:
        connection = {"transport": "streamable_http", "url": ORDER["url"], "headers": ORDER["headers"]}
    else:
        program, *args = ORDER["command"]
        connection = {"transport": "stdio", "command": program, "args": args, "env": ORDER["env"]}
    client = MultiServerMCPClient({"probe": connection}, callbacks=Callbacks(on_progress=on_progress))
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(name, **arguments):
        return await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})

    def text(message):
        return message.content if isinstance(message.content, str) else message.content[0]["text"]

    told = {"list": sorted(tools), "call": text(await call("echo", text=ORDER["text"]))}
    try:
        failed = await call("raises", text="no such city")
        told["error"] = [failed.status == "error", text(failed)]
    except ToolException as error:
        told["error"] = [True, str(error)]
    open(ORDER["seen"], "w").close()
    told["progress"] = [seen, text(await call("paced", path=ORDER["seen"], count=3))]
    notes, picture = await client.get_resources("probe", uris=["probe://notes", "probe://picture"])
    told["resources"] = [notes.as_string(), picture.as_bytes().hex()]
    (message,) = await client.get_prompt("probe", "greet", arguments={"name": "Ada"})
    told["prompts"] = message.content
    print(json.dumps(told))


asyncio.run(main())

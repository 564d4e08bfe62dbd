"""Pydantic AI: a server as a toolset of an agent."""

import asyncio
import json

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.test import TestModel

ORDER = json.loads(input())


async def main():
    seen = []

    async def on_progress(progress, total, message):
        seen.append([progress, total, message])
        with open(ORDER["seen"], "w") as file:
            file.write(str(int(progress)))

    if "url" in ORDER:
        toolset = MCPToolset(ORDER["url"], headers=ORDER["headers"], progress_handler=on_progress)
    else:
        program, *args = ORDER["command"]
        toolset = MCPToolset(StdioTransport(program, args, env=ORDER["env"]), progress_handler=on_progress)
    async with toolset:
        told = {"list": sorted(tool.name for tool in await toolset.list_tools())}
        told["call"] = await toolset.direct_call_tool("echo", {"text": ORDER["text"]})
        try:
            await toolset.direct_call_tool("raises", {"text": "no such city"})
        except Exception as error:
            told["error"] = [True, str(error)]
        open(ORDER["seen"], "w").close()
        told["progress"] = [seen, await toolset.direct_call_tool("paced", {"path": ORDER["seen"], "count": 3})]
        told["resources"] = [await toolset.read_resource("probe://notes"),
                             (await toolset.read_resource("probe://picture")).data.hex()]
        got = await toolset.get_prompt("greet", {"name": "Ada"})
        told["prompts"] = got.messages[0].content.content
        # An agent, with a model that calls each tool it is told to.
        agent = Agent(TestModel(call_tools=["echo"]), toolsets=[toolset])
        run = await agent.run("anything")
        told["agent"] = [part.tool_name for message in run.all_messages() for part in message.parts
                         if isinstance(part, ToolReturnPart)]
    print(json.dumps(told))


asyncio.run(main())

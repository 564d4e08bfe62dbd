"""The official Python client, first line."""

import asyncio
import json
from contextlib import asynccontextmanager

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from steps import ORDER, Steps


@asynccontextmanager
async def streams():
    if "url" in ORDER:
        async with streamablehttp_client(ORDER["url"], headers=ORDER["headers"]) as (read, write, _):
            yield read, write
    else:
        program, *args = ORDER["command"]
        async with stdio_client(StdioServerParameters(command=program, args=args, env=ORDER["env"])) as (read, write):
            yield read, write


async def main():
    async with streams() as (read, write), ClientSession(read, write) as session:
        version = (await session.initialize()).protocolVersion
        return await Steps(session, McpError, lambda error: error.error.code).run(version)


print(json.dumps(asyncio.run(main())))

"""The official Python client, second line."""

import asyncio
import json

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from steps import ORDER, Steps


async def steps(transport):
    async with Client(transport, mode=ORDER["era"]) as client:
        return await Steps(client, MCPError, lambda error: error.code).run(client.protocol_version)


async def main():
    if "url" not in ORDER:
        program, *args = ORDER["command"]
        return await steps(StdioServerParameters(command=program, args=args, env=ORDER["env"]))
    async with create_mcp_http_client(headers=ORDER["headers"]) as http:
        return await steps(streamable_http_client(ORDER["url"], http_client=http))


print(json.dumps(asyncio.run(main())))

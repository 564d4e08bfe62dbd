"""The two stdio bridges, and the official client on top of either."""

import asyncio

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

import programs

BRIDGES = {
    "published": [str(programs.PYTHON_BIN / "ramen-mcp-bridge")],
    "ours": [str(programs.BIN / "ramen"), "bridge"],
}
# How the official client connects: the handshake of the older revisions, a probe for the newest, the newest at once.
MODES = ["legacy", "auto", "2026-07-28"]


def parameters(bridge, worker, *args, key=None):
    command, *rest = BRIDGES[bridge]
    return StdioServerParameters(
        command=command,
        args=[*rest, "--target", worker.address, "--key", key or worker.key, "--group", "demo", *args],
        env=programs.environment(),
    )


def with_client(bridge, worker, mode, body, *args, key=None, **options):
    """Runs `await body(client)` on a connected official client."""

    async def run():
        async with Client(parameters(bridge, worker, *args, key=key), mode=mode, **options) as client:
            return await body(client)

    return asyncio.run(asyncio.wait_for(run(), programs.PATIENCE))


def over_http(url, key, mode, body, **options):
    """Runs `await body(client)` on an official client that is connected over Streamable HTTP."""

    async def run():
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                return await body(client)

    return asyncio.run(asyncio.wait_for(run(), programs.PATIENCE))


def modern(client):
    return client.protocol_version >= "2026"


async def listed(client, wanted):
    """The names of the tools once these are among them: a bridge does not wait for servers that are slow to start."""
    while not wanted <= (names := {tool.name for tool in (await client.list_tools()).tools}):
        await asyncio.sleep(0.05)
    return names

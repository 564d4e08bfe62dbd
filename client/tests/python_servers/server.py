"""A server made with the official SDK, for the tests of the client: `server.py stdio|sessions|stateless|json`."""

import asyncio
import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("official", version="9.1")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
def fail(why: str) -> str:
    """Raises."""
    raise ToolError(why)


@server.tool()
async def steps(ctx: Context) -> str:
    """Reports progress."""
    for step in range(3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


stopped = {}


@server.tool()
async def forever(ctx: Context, name: str) -> str:
    """Ends only when it is cancelled."""
    try:
        await ctx.report_progress(0, 1, "begun")
        await asyncio.Event().wait()
    finally:
        stopped.setdefault(name, asyncio.Event()).set()
    return "never"


@server.tool()
async def was_stopped(name: str) -> str:
    """Whether `forever` of this name was cancelled."""
    await asyncio.wait_for(stopped.setdefault(name, asyncio.Event()).wait(), 30)
    return "yes"


@server.tool()
async def grow(ctx: Context, name: str) -> str:
    """Adds a tool and says so."""
    server.add_tool(lambda: "new", name=name, description="was not there before")
    await ctx.notify_tools_changed()
    if not ctx.request_context.session.protocol_version.startswith("2026"):
        await ctx.request_context.session.send_tool_list_changed()
    return name


@server.resource("demo://text")
def text() -> str:
    """A text."""
    return "the text"


@server.resource("demo://bytes", mime_type="image/png")
def data() -> bytes:
    """Some bytes."""
    return b"\x89PNG"


@server.prompt()
def review(code: str) -> str:
    """Reviews."""
    return f"Please review: {code}"


def main(mode: str) -> None:
    if mode == "stdio":
        server.run("stdio")
        return
    app = server.streamable_http_app(stateless_http=mode != "sessions", json_response=mode == "json")
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(app, log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


main(sys.argv[1])

"""Peer: the official SDK, Streamable HTTP, stateless, answers as JSON, on uvloop."""

import logging
from typing import Literal

from calculator import calculator_func
from mcp.server.mcpserver import MCPServer
from web import serve

logging.disable(logging.WARNING)
server = MCPServer("bench")


@server.tool()
def demo_calculator_tool(var1: float, var2: float, func: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Add, subtract, multiply or divide two numbers."""
    return calculator_func(var1, var2, func)


serve(server.streamable_http_app(stateless_http=True, json_response=True))

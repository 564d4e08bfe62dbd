"""Peer: FastMCP, Streamable HTTP, stateless, answers as JSON, on uvloop."""

import logging
from typing import Literal

from calculator import calculator_func
from fastmcp import FastMCP
from web import serve

logging.disable(logging.WARNING)
server = FastMCP("bench")


@server.tool
def demo_calculator_tool(var1: float, var2: float, func: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Add, subtract, multiply or divide two numbers."""
    return calculator_func(var1, var2, func)


serve(server.http_app(path="/mcp", stateless_http=True, json_response=True))

"""`9**9**9` is one call into C that nothing can interrupt: the descriptor's timeout_seconds ends it
with its process, and the other tools go on."""

from mcp_server_calculator.calculator import evaluate


def calculate(expression):
    return evaluate(expression)

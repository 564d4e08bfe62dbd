"""The one calculator that every server of the benchmark runs: the demo group's own code."""

import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "examples/demo-group/mcp/tools/demo_calculator_tool"
sys.path[:0] = [str(TOOL), str(TOOL / "utils")]

from demo_calculator_tool import calculator_func  # noqa: E402, F401


def announce(port):
    """The benchmark waits for this line."""
    print(f"listening {port}", flush=True)

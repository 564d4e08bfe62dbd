# mcp/tools/demo_calculator_tool/demo_calculator_tool.py
from demo_calculator_tool_utils import apply   # utils/ is on sys.path

def calculator_func(var1, var2, func):
    return apply(func, var1, var2)

"""The arithmetic behind demo_calculator_tool."""

import operator

OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}


def apply(func, a, b):
    return OPERATIONS[func](a, b)

"""The text behind demo://readme."""

README = """\
# Demo group

- `demo_calculator_tool` adds, subtracts, multiplies or divides two numbers.
- `demo_explain_prompt` asks for a calculation to be explained to a reader.
"""


def read_me():
    return README

"""Metadata of installed packages is found beside the packages themselves."""

import json
from importlib.metadata import version

NAMES = ["numpy", "pandas", "pydantic", "httpx", "openpyxl", "python-docx", "pillow", "markitdown"]


def versions():
    return json.dumps({name: version(name) for name in NAMES}, indent=2)

"""The fenced blocks of docs/cluster."""

import re

from conftest import ROOT

PAGES = sorted((ROOT / "docs" / "cluster").glob("*.md"))
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> dict[str, str]:
    """`page:file or number` → text."""
    result = {}
    for page in PAGES:
        for number, match in enumerate(FENCE.finditer(page.read_text())):
            words = match["info"].split()
            if words[:1] == [language]:
                name = next((word.removeprefix("file=") for word in words if word.startswith("file=")), str(number))
                result[f"{page.name}:{name}"] = match["text"]
    return result

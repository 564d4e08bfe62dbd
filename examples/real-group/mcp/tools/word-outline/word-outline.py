"""A tool that prints, as much code in the wild does: the text goes to the worker's log, and the
answer is what the function returns. Its name has a hyphen, which no import statement could say."""

import io
import sys

from docx import Document


def outline(title, sections):
    print("writing", len(sections), "sections")
    document = Document()
    document.add_heading(title, level=0)
    for section in sections:
        document.add_heading(section, level=1)
        document.add_paragraph("…")
    buffer = io.BytesIO()
    document.save(buffer)

    buffer.seek(0)
    headings = [p.text for p in Document(buffer).paragraphs if p.style.name in ("Title", "Heading 1")]
    print("read back", len(headings), "headings", file=sys.stderr)
    return headings

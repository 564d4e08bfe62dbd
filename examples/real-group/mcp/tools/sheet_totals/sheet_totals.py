"""A workbook made and read in memory; the answer is a dataclass."""

import datetime
import io
from dataclasses import dataclass

from openpyxl import Workbook, load_workbook


@dataclass
class Totals:
    sheet: str
    rows: int
    totals: dict[str, float]
    bytes_written: int
    written: datetime.date


def totals(header, rows):
    book = Workbook()
    sheet = book.active
    sheet.title = "data"
    sheet.append(header)
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} values but there are {len(header)} columns")
        sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)

    sheet = load_workbook(io.BytesIO(buffer.getvalue()), read_only=True)["data"]
    names, *data = sheet.iter_rows(values_only=True)
    sums = {name: sum(row[index] for row in data) for index, name in enumerate(names)}
    return Totals("data", len(data), sums, len(buffer.getvalue()), datetime.date.today())

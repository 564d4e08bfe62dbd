"""What results and exceptions become when they are not plain ``str``, numbers, lists and dicts.

The rules are written down in docs/reference/results.md; keep the two together.
"""

import sys

LIBRARIES = ("mcp", "mcp_types", "fastmcp")
CONTENT = frozenset(
    ("TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink")
)
GROUP_SHOWN = 5
ERROR_CHARS = 16_384


def describe(error, root, folder):
    """One line, ``Type: message``. Never fails."""
    try:
        text = one_line(error, 0)
    except BaseException:
        text = type(error).__name__
    if root is not None and root in text:
        text = text.replace(root + ".utils.", "").replace(root + ".", "")
    if folder and folder in text:
        text = text.replace(folder.rstrip("/") + "/", "")
    text = without_addresses(text)
    if len(text) > ERROR_CHARS:
        text = text[:ERROR_CHARS] + "…"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(error, depth):
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException as other:
        message = f"<str() of it raised {type(other).__name__}>"
    message = " ".join(masked(message).split())
    if isinstance(error, BaseExceptionGroup) and depth < 3:
        shown = [one_line(inner, depth + 1) for inner in error.exceptions[:GROUP_SHOWN]]
        if len(error.exceptions) > GROUP_SHOWN:
            shown.append("…")
        message = f"{message}: {'; '.join(shown)}"
    return f"{name}: {message}" if message else name


def masked(message):
    """A secret that loses its line breaks or runs of blanks could not be recognised any more."""
    import os

    for name, value in os.environ.items():
        if name.startswith("RAMEN_SECRET_"):
            value = value.strip("\r\n")
            if value and " ".join(value.split()) != value and value in message:
                message = message.replace(value, "***")
    return message


def without_addresses(text):
    """``<Thing object at 0x7f…>`` becomes ``<Thing object>``."""
    start = text.find(" at 0x")
    while start >= 0:
        end = start + 6
        while end < len(text) and text[end] in "0123456789abcdefABCDEF":
            end += 1
        text = text[:start] + text[end:]
        start = text.find(" at 0x", start)
    return text


def is_content(value):
    """A content block of the MCP library, or something of it that makes one."""
    kind = type(value)
    if kind.__name__ == "Block" and kind.__module__ == "ramen_runtime.content":
        return True
    if kind.__module__.partition(".")[0] not in LIBRARIES:
        return False
    return kind.__name__ in CONTENT or any(
        hasattr(kind, name) for name in ("to_image_content", "to_audio_content")
    )


def block(value):
    """The dict of one content block; of anything else a text block."""
    if isinstance(value, dict) and is_content(value):
        return value
    if is_content(value):
        for name in ("to_image_content", "to_audio_content"):
            if hasattr(value, name):
                value = getattr(value, name)()
                break
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, str):
        return {"type": "text", "text": plain_text(value)}
    import _ramen_native as native

    return {"type": "text", "text": native.to_json(value)}


def plain_text(value):
    return str.__str__(value)


def blocks(values):
    return [block(value) for value in values]


def top(value, resource):
    """``(form, value)`` of a whole result that is no plain builtin; form None: encode as JSON."""
    kind = type(value)
    if is_content(value):
        return "content", [block(value)]
    if kind.__module__.partition(".")[0] in LIBRARIES:
        if kind.__name__ == "CallToolResult":
            return call_tool_result(value)
        if kind.__name__ in ("TextResourceContents", "ReadResourceContents"):
            text = getattr(value, "text", None) or getattr(value, "content", "")
            return ("blob" if isinstance(text, bytes) else "text"), text
        if kind.__name__ == "BlobResourceContents":
            from base64 import b64decode

            return "blob", b64decode(value.blob)
    if resource and isinstance(value, (bytearray, memoryview)):
        return "blob", bytes(value)
    return None, value


def call_tool_result(value):
    content = blocks(value.content or ())
    if renamed(value, "is_error", "isError"):
        texts = [item["text"] for item in content if item.get("type") == "text"]
        return "error", " ".join(masked(" ".join(texts)).split()) or "the tool reported an error"
    structured = renamed(value, "structured_content", "structuredContent")
    if not content and structured is not None:
        return None, structured
    return "content", content


def renamed(value, name, before):
    """A field of the MCP library, whose second version warns of its old name."""
    return getattr(value, name if hasattr(value, name) else before, None)


def simpler(value):
    """Something plainer to encode in the place of ``value``; ``TypeError`` when there is no rule."""
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "numpy":
        return numpy(value)
    if module == "pandas":
        return pandas(value)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields

        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(kind, "model_dump") and hasattr(kind, "model_fields"):
        if is_content(value):
            return block(value)
        return value.model_dump(mode="json")
    if hasattr(kind, "__fields__") and hasattr(kind, "dict"):
        return value.dict()
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    # A value can only be of a class whose module somebody has imported.
    loaded = sys.modules.get
    if (enum := loaded("enum")) and isinstance(value, enum.Enum):
        return value.value
    if datetime := loaded("datetime"):
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return duration(value)
    if (decimal := loaded("decimal")) and isinstance(value, decimal.Decimal):
        if not value.is_finite():
            raise ValueError(f"Out of range decimal values are not JSON compliant: {value}")
        return str(value)
    if (uuid := loaded("uuid")) and isinstance(value, uuid.UUID):
        return str(value)
    if hasattr(kind, "__fspath__"):
        path = value.__fspath__()
        if isinstance(path, str):
            return path
    if (collections := loaded("collections")) and isinstance(value, collections.deque):
        return list(value)
    from collections.abc import ItemsView, KeysView, Mapping, ValuesView

    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (KeysView, ValuesView, ItemsView)) and not isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"Object of type {kind.__name__} is not JSON serializable: return "
            "ramen_runtime.content.image, audio or resource, or text"
        )
    raise TypeError(f"Object of type {kind.__name__} is not JSON serializable")


def numpy(value):
    import numpy as np

    if isinstance(value, np.ndarray):
        if value.dtype.kind == "M":
            # NaT as a text, and no way back from a list of integers.
            return [moment(item) for item in value] if value.ndim else moment(value[()])
        return value.tolist()
    if isinstance(value, np.datetime64):
        return moment(value)
    if isinstance(value, np.timedelta64):
        if np.isnat(value):
            return None
        return duration(value.astype("timedelta64[us]").item())
    if isinstance(value, np.generic):
        plain = value.item()
        if type(plain) is not type(value):
            return plain
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def moment(value):
    import numpy as np

    if isinstance(value, np.ndarray):
        return [moment(item) for item in value]
    return None if np.isnat(value) else str(value)


def pandas(value):
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        # As pandas' own to_json: what is missing is null.
        clean = value.astype(object).where(value.notna(), None)
        return clean.to_dict(orient="records")
    if isinstance(value, (pd.Series, pd.Index)) or hasattr(value, "__array__") and hasattr(value, "isna"):
        return [None if pd.isna(item) is True else item for item in value.tolist()]
    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    if isinstance(value, pd.Timedelta):
        return duration(value.to_pytimedelta())
    if isinstance(value, (pd.Period, pd.Interval)):
        return str(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def duration(value):
    """ISO 8601, as pydantic writes it."""
    sign = ""
    if value.days < 0:
        sign, value = "-", -value
    hours, seconds = divmod(value.seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    text = f"{sign}P{value.days}D" if value.days else f"{sign}P"
    clock = f"{hours}H" if hours else ""
    clock += f"{minutes}M" if minutes else ""
    if value.microseconds:
        clock += f"{seconds}.{value.microseconds:06d}".rstrip("0") + "S"
    elif seconds or not (clock or value.days):
        clock += f"{seconds}S"
    return text + ("T" + clock if clock else "")

"""MCP content: what a tool returns when text or JSON is not enough.

Return one block, or a list of blocks and strings.
"""

__all__ = ["Block", "audio", "image", "link", "resource", "text"]


class Block(dict):
    """One content block, in the form that MCP gives it."""

    __slots__ = ()


def text(value, **extra):
    """A text block."""
    if not isinstance(value, str):
        raise TypeError(f"text must be str, not {type(value).__name__}")
    return _block("text", extra, text=value)


def image(data, mime_type="image/png", **extra):
    """An image: its bytes, the path of a file, or a Pillow image (which is saved as PNG or JPEG)."""
    if hasattr(data, "save") and hasattr(data, "size") and not isinstance(data, (bytes, str)):
        from io import BytesIO

        buffer = BytesIO()
        data.save(buffer, format="JPEG" if mime_type == "image/jpeg" else "PNG")
        if mime_type != "image/jpeg":
            mime_type = "image/png"
        data = buffer.getvalue()
    return _block("image", extra, data=_base64(data), mimeType=mime_type)


def audio(data, mime_type="audio/wav", **extra):
    """Sound: its bytes, or the path of a file."""
    return _block("audio", extra, data=_base64(data), mimeType=mime_type)


def resource(uri, value, mime_type=None, **extra):
    """An embedded resource: ``value`` is its text or its bytes."""
    inner = {"uri": str(uri)}
    if mime_type is not None:
        inner["mimeType"] = mime_type
    if isinstance(value, str):
        inner["text"] = value
    else:
        inner["blob"] = _base64(value, path=False)
    return _block("resource", extra, resource=inner)


def link(uri, name=None, mime_type=None, description=None, **extra):
    """A link to a resource that the client may read."""
    fields = {"uri": str(uri), "name": str(uri) if name is None else name}
    if mime_type is not None:
        fields["mimeType"] = mime_type
    if description is not None:
        fields["description"] = description
    return _block("resource_link", extra, **fields)


def _block(kind, extra, **fields):
    block = Block(type=kind, **fields)
    if "annotations" in extra:
        block["annotations"] = extra.pop("annotations")
    if "meta" in extra:
        block["_meta"] = extra.pop("meta")
    if extra:
        raise TypeError(f"unexpected keyword argument {next(iter(extra))!r}")
    return block


def _base64(data, path=True):
    from base64 import b64encode

    if path and (isinstance(data, str) or hasattr(data, "__fspath__")):
        with open(data, "rb") as file:
            data = file.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data must be bytes, not {type(data).__name__}")
    return b64encode(data).decode("ascii")

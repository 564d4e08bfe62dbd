"""A resource that returns bytes."""

import io

from PIL import Image


def logo():
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((32, 32)).save(buffer, format="PNG")
    return buffer.getvalue()
